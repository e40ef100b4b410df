# the rules that the source keeps, and that a file which breaks one is noticed: dev/size.py
#     sh test/program/test_size.sh
CDPATH= cd "$(dirname "$0")/../.." || exit 1
python3 dev/size.py --test
