"""tools/check_words.py refuses what docs/glossary.md replaces, and finds none of it in this code."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_words  # noqa: E402

GLOSSARY = """\
| word | meaning | replaces |
|---|---|---|
| doorbell | wakes a rank | `RankBells`, `*bells*` |
| replicas | equal copies | `zero/copies`, `num_copies` |
| resume | continue | `go_on`, `go_on_*` |
| keep | has no row of its own | |
| report | | `*told*` |
"""


class CheckWordsTest(unittest.TestCase):
    def found(self, path, code):
        return [name for _, name, _ in check_words.Glossary(GLOSSARY).breaches(path, code)]

    def test_identifiers_are_refused_in_each_spelling(self):
        code = "RankBells ring; int go_on_; go_on_from(x); kMaxBells; bells_of(); MyBells y; num_copies;"
        self.assertEqual(self.found("comm/a.cpp", code),
                         ["RankBells", "go_on_", "go_on_from", "kMaxBells", "bells_of", "MyBells", "num_copies"])

    def test_other_identifiers_strings_comments_and_includes_are_not(self):
        code = '#include "bells.h"\nauto s = "go_on";  // go_on\nrankbells; going_on; go; BellTower(); let_go_on;'
        self.assertEqual(self.found("comm/a.cpp", code), [])

    def test_a_folder_limits_a_refusal(self):
        self.assertEqual(self.found("zero/unit.h", "copies"), ["copies"])
        self.assertEqual(self.found("device/copies.h", "copies"), [])

    def test_a_row_without_a_meaning_counts(self):
        self.assertEqual(self.found("a.h", "told_stopped_; kTold; toldest"), ["told_stopped_", "kTold"])

    def test_a_breach_has_its_line_and_the_word_to_use(self):
        self.assertEqual(list(check_words.Glossary(GLOSSARY).breaches("a.h", "/* x\n*/\n\nint go_on;")), [(4, "go_on", "resume")])

    def test_this_code_has_none(self):
        run = subprocess.run([sys.executable, "-B", ROOT / "tools/check_words.py"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stdout.count("\n")), (0, 1), run.stdout)


if __name__ == "__main__":
    unittest.main()
