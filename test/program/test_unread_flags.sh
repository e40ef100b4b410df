# every flag of every command, one at a time beside some 40 settings: it changes what the command makes,
# or is refused by name: test/program/unread_flags.py
#     sh test/program/test_unread_flags.sh
. test/ok.sh
need_python 1000 test_unread_flags
scratch
"$PYTHON" test/program/unread_flags.py . "$dir"
