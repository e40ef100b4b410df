/*
test_elementary.cpp -- the vector-friendly exp, sigmoid and erf against the library in double,
on floats spread over every binade, and on the values where such functions go wrong.
*/
#include <math.h>
#include "../../attention_variants.cuh"
#include "../check.h"

// the largest error in units of the last place of the right answer,
// over every 4999th float of [lo, hi]
template <class F, class G>
void check_ulp(const char* name, F f, G g, float lo, float hi, double bound) {
    double worst = 0; float at = 0; long count = 0;
    for (uint64_t u = 0; u < 1ull << 32; u += 4999) {
        const float x = float_of_bits((uint32_t)u);
        const double want = g((double)x);
        if (!(x >= lo && x <= hi) || fabs(want) < 1.1754944e-38) { continue; }
        const double error = fabs(f(x) - want) / ldexp(1.0, ilogb(want) - 23);
        if (!(error <= worst)) { worst = error; at = x; }
        count++;
    }
    CHECK(worst <= bound && count > 100000,
          "%s: %.3f ulp at %.9g, wanted at most %.2f (%ld values)", name, worst, at, bound, count);
}
static void check_value(const char* what, float got, float want) {
    CHECK(got == want || (got != got && want != want), "%s: got %.9g, wanted %.9g", what, got,
          want);
}

// a payload that, shifted as n is, would change the exponent
static const float odd_nan = float_of_bits(0x7fc01235);

static void test_exp() {
    check_ulp(
        "exp_", [](float x) { return exp_(x); }, [](double x) { return exp(x); }, -87.3365402f,
        88.7228317f, 1.05);
    check_value("exp_(-inf)", exp_(-INFINITY), 0);
    check_value("exp_(-87.34)", exp_(-87.34f), 0);
    check_value("exp_(-3e38)", exp_(-3e38f), 0);
    check_value("exp_(0)", exp_(0.0f), 1);
    check_value("exp_(88.7228394), the first that overflows", exp_(88.7228394f), INFINITY);
    check_value("exp_(3e38)", exp_(3e38f), INFINITY);
    check_value("exp_(inf)", exp_(INFINITY), INFINITY);
    check_value("exp_(nan)", exp_(odd_nan), NAN);
    CHECK(exp_(0.5) == exp(0.5), "double must be the library's");
}

static void test_sigmoid() {
    check_ulp(
        "sigmoid_", [](float x) { return sigmoid_(x); }, [](double x) { return 1 / (1 + exp(-x)); },
        -87.3f, INFINITY, 2.5);
    check_value("sigmoid_(-inf)", sigmoid_(-INFINITY), 0);
    check_value("sigmoid_(inf)", sigmoid_(INFINITY), 1);
    check_value("sigmoid_(nan)", sigmoid_(odd_nan), NAN);
}

static void test_erf() {
    check_ulp(
        "erf_", [](float x) { return erf_(x); }, [](double x) { return erf(x); }, -INFINITY,
        INFINITY, 2.7);
    check_value("erf_(-inf)", erf_(-INFINITY), -1);
    check_value("erf_(inf)", erf_(INFINITY), 1);
    check_value("erf_(nan)", erf_(odd_nan), NAN);
    CHECK(erf_(0.5) == erf(0.5), "double must be the library's");
}

static void test_log() {
    check_ulp(
        "log_", [](float x) { return log_(x); }, [](double x) { return log(x); }, 1.1754944e-38f,
        3.4e38f, 2.5);
    check_value("log_(0)", log_(0.0f), -INFINITY);
    check_value("log_(inf)", log_(INFINITY), INFINITY);
    check_value("log_(-1)", log_(-1.0f), NAN);
}

int main() {
    CASE("exp") { test_exp(); }
    CASE("sigmoid") { test_sigmoid(); }
    CASE("erf") { test_erf(); }
    CASE("log") { test_log(); }
    return check_done();
}
