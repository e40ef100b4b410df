/*
core/defaults.h -- for a program that is compiled as one unit: what -D does not name of the switches
is the first row of its table, as with the Makefile.
*/
#ifndef SWITCHES_GIVEN
#define SWITCHES_GIVEN
#endif
