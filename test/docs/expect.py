"""How the programs of test/docs count. They use what the repository has, and end with what does not hold."""
import sys

passed, wrong = 0, []


def expect(ok, what):
    """Counts a check; keeps what is wrong if it does not hold."""
    global passed
    passed += bool(ok)
    if not ok: wrong.append(what)


def end():
    """Prints what is wrong and how many checks hold, and ends the program."""
    for what in wrong: print("FAIL", what)
    print(f"{passed} passed, {len(wrong)} failed")
    sys.exit(bool(wrong))
