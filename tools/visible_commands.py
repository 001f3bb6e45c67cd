"""Names that the programs show when they are asked: their help, and what they answer to flags, values and keys.

The words of an answer do not matter: a name is unknown if the answer is the one that a name gets which no program has.
"""
import json
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAG = re.compile(r"^  (-[^ ]+)((?: \S+)*)(?:  +(\S.*))?$", re.M)
NONSENSE = "zzqqx"  # no program has a flag, value or key of this name
MOST_SHOWN = 20  # lines about mistakes in one command line
# Placeholders of values that are words.
WORDS = ("WORD", "TYPE", "HOW", "OVER", "DO", "NAME", "LAUNCHER", "LEVEL", "DTYPE")
# Words of messages around values, which are not tried as values.
FILLERS = set("a an and be evaluation gives is knows must name neither nor of one or service the which zeroth".split())
LISTS = ("--report_to",)  # flags that take several values, with commas between
CONFIG = "keys of ds_config.json"
FOREIGN = "finetune: flags that --help leaves out, with the value x"
KEPT = ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS")


def environment(home, **more):
    """The environment of a user who has set nothing."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    return {**kept, "HOME": str(home), "LC_ALL": "C.UTF-8", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", **more}


def flags_of(text):
    """Each flag of a help with the placeholders of its values, and each other name of a flag with the flag."""
    for names, values, meaning in FLAG.findall(text):
        name, *others = sorted(names.split(","), key=lambda one: not one.startswith("--"))
        yield name + (f" as {meaning}" if re.fullmatch(r"--[\w-]+", meaning) else values)
        yield from (f"{other} as {name}" for other in others)


def words_of(message):
    """The words of a message about nonsense that may be values."""
    return set(re.findall(r"(?<![\w.-])[a-z][\w-]*", message.partition(NONSENSE)[2])) - FILLERS


def first_word(flag):
    return flag.split(" ")[0]


class Commands:
    def __init__(self, bin_folder, golden, literals):
        self.bin = bin_folder
        self.golden = golden
        self.literals = literals
        self.helps = {}

    def parts(self):
        """Functions that may run at the same time, each of which gives {heading: names}."""
        return (self.finetune_names, self.zeroth_names, self.config_keys)

    def run(self, *words, **more):
        """Exit code, standard output, lines of standard error."""
        with tempfile.TemporaryDirectory(prefix="zeroth-names.") as folder:
            done = subprocess.run([self.bin / words[0], *words[1:]], cwd=folder, env=environment(folder, **more),
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr.splitlines()

    def help(self, *command):
        if command not in self.helps:
            self.helps[command] = self.run(*command, "--help")[1]
        return self.helps[command]

    def zeroth_names(self):
        """Commands, flags and values of zeroth and of comm-bench, and the exit codes that need no rank."""
        found = {}
        for command in (("zeroth",), ("zeroth", "check-config"), ("zeroth", "checkpoint"), ("zeroth", "export"),
                        ("comm-bench",)):
            found[f"{' '.join(command)}: flags"] = set(flags_of(self.help(*command)))
        found["zeroth: commands"] = set(self.commands())
        found["zeroth: flags that --help leaves out"] = self.hidden(("zeroth",), "zeroth: flags that --help leaves out")
        found["zeroth agent: flags"] = self.hidden(("zeroth", "agent"), "zeroth agent: flags")
        for command, rest in ((("zeroth",), ("true",)), (("zeroth", "export"), ("DIR", "OUT"))):
            for flag in found[f"{' '.join(command)}: flags"]:
                if flag.split(" ")[-1] in WORDS and " as " not in flag:
                    words = (*command, first_word(flag))
                    heading = f"{' '.join(command)}: values of {words[-1]}"
                    found[heading] = self.values(lambda word: self.run(*words, word, *rest), heading)
        for name, command in (("ZEROTH_CPU", ("zeroth", "report")), ("DS_ACCELERATOR", ("zeroth", "true"))):
            heading = f"values of {name}"
            found[heading] = self.values(lambda word: self.run(*command, **{name: word}), heading)
        found["exit codes that are seen"] = set(self.exit_codes())
        return found

    def commands(self):
        for line in self.help("zeroth").splitlines():
            if usage := re.match(r"(?:Usage:|      ) zeroth ([a-z-]+)((?: \S+)*)$", line):
                choices = [word for word in usage.group(2).split() if "|" in word]
                for choice in choices[0].split("|") if choices else [""]:
                    yield re.sub(r" \S*\|\S*", f" {choice}", "".join(usage.groups()))

    def hidden(self, command, heading):
        """Flags that the command knows and that its help does not list."""
        listed = {first_word(flag) for flag in flags_of(self.help(*command))}
        spelled = {name for text in self.literals("launcher") for name in text.split(",")}
        candidates = {name for name in {*spelled, *self.golden.get(heading, ())} if re.fullmatch(r"--[a-z_-]+", name)}

        def answer(flag):
            words = (f"{flag}=x",) if command == ("zeroth",) else (flag, "x")
            return re.split(r"[;(]", self.run(*command, *words)[2][0].replace(flag, "FLAG"))[0].strip()

        unknown = answer(f"--{NONSENSE}")
        return {flag for flag in candidates - listed if not answer(flag).startswith(unknown)}

    def values(self, run, heading):
        """The accepted words, of those in the answer to nonsense and those known so far."""
        refusal = run(NONSENSE)[2][0]
        listed, known = words_of(refusal), self.golden.get(heading, set())
        refused = {word for word in listed ^ known if refusal.replace(NONSENSE, word) in run(word)[2]}
        return (listed | known) - refused

    def exit_codes(self):
        with tempfile.TemporaryDirectory(prefix="zeroth-names.") as folder:
            plain, config = pathlib.Path(folder, "plain"), pathlib.Path(folder, "config.json")
            plain.write_text("no program\n")
            plain.chmod(0o600)
            config.write_text('{"zero_optimization": {"stage": 7}}')
            for what, words in {
                "zeroth without PROGRAM": ("zeroth",),
                "zeroth, and the rank ends with 0": ("zeroth", "true"),
                "zeroth, and the rank ends with 7": ("zeroth", "sh", "-c", "exit 7"),
                "zeroth, and the rank dies of SIGKILL": ("zeroth", "sh", "-c", "kill -KILL $$"),
                "zeroth, and there is no such program": ("zeroth", NONSENSE),
                "zeroth, and the file is no program": ("zeroth", str(plain)),
                "zeroth check-config of a file that a run refuses": ("zeroth", "check-config", str(config)),
                "zeroth checkpoint verify of a folder without one": ("zeroth", "checkpoint", "verify", folder),
                "zeroth --help": ("zeroth", "--help"),
            }.items():
                yield f"{self.run(*words)[0]}: {what}"

    def finetune_names(self):
        text = self.help("finetune")
        flags = set(flags_of(text))
        own = {first_word(flag): flag.split(" ")[-1] for flag in flags if " as " not in flag}
        found = {"finetune: flags": flags, FOREIGN: self.foreign({first_word(flag) for flag in flags}),
                 "exit codes that are seen": {
                     f"{self.run('finetune', '--help')[0]}: finetune --help",
                     f"{self.run('finetune', f'--{NONSENSE}')[0]}: finetune with a wrong flag"}}
        for flag, words in self.values_of_finetune([flag for flag in own if own[flag] in WORDS]).items():
            found[f"finetune: values of {flag}"] = words
        return found

    def complaints(self, *words):
        return [line.removeprefix("finetune: error:").strip() for line in self.run("finetune", *words)[2]]

    def foreign(self, listed):
        """Flags that finetune's help does not list, most of them of Hugging Face's Trainer: accepted or refused."""
        known = self.golden.get(FOREIGN, set())
        # One command line has many flags, but shows only so many mistakes: those without one come first, together.
        quiet = {first_word(line) for line in known if line.endswith(" accepted")}
        fields = json.loads((ROOT / "tests/trainer/fixtures/hf_fields.json").read_text(encoding="utf-8"))
        rows = {name for text in self.literals("trainer/flags") for name in (text, *re.findall(r"\w+_\w+", text))}
        fields = [f"--{name}" for name in sum(fields.values(), []) + sorted(rows)]
        spelled = {name for text in self.literals("trainer") for name in text.split(",")}
        loud = {name for name in {*fields, *spelled, *map(first_word, known)}
                if re.fullmatch(r"--[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*", name)}
        quiet, loud = sorted(quiet - listed), sorted(loud - quiet - listed)
        size = MOST_SHOWN - 2
        batches = [quiet]
        for batch in ([name for name in loud if "_" in name], [name for name in loud if "_" not in name]):
            batches += [batch[i : i + size] for i in range(0, len(batch), size)]  # a flag has two spellings
        unknown = re.split(r"[;(]", self.complaints(f"--{NONSENSE}=x")[0])[0].strip()
        return {line for batch in batches if batch for line in self.understood(batch, unknown)}

    def understood(self, batch, unknown):
        """Those of the names that finetune knows, as accepted or refused. `unknown` is how it answers to nonsense."""
        lines = self.complaints(*(f"{name}=x" for name in batch))
        if len(lines) > MOST_SHOWN and len(batch) > 1:  # some are not shown
            half = len(batch) // 2
            yield from self.understood(batch[:half], unknown)
            yield from self.understood(batch[half:], unknown)
            return
        for name in batch:
            about = [line for line in lines if re.match(rf"{name}[ :]", line)]
            if not any(line.startswith(unknown.replace(f"--{NONSENSE}", name)) for line in about):
                yield f"{name} {'refused' if about else 'accepted'}"

    def values_of_finetune(self, flags):
        """{flag: words}. One command line has a word for each flag."""
        def complaints(words):
            return self.complaints("--steps", "5", *(word for pair in words.items() for word in pair))

        refusals = {line.split(" ")[0]: line for line in complaints(dict.fromkeys(flags, NONSENSE)) if NONSENSE in line}
        accepted, candidates = {}, {}
        for flag in refusals.keys() & flags:
            listed, known = words_of(refusals[flag]), self.golden.get(f"finetune: values of {flag}", set())
            accepted[flag], candidates[flag] = listed & known, sorted(listed ^ known)
        for flag in LISTS:
            if not any(line.startswith(f"{flag} ") for line in complaints({flag: ",".join(candidates[flag])})):
                accepted[flag] |= set(candidates.pop(flag))
        for i in range(max(map(len, candidates.values()), default=0)):
            words = {flag: words[i] for flag, words in candidates.items() if i < len(words)}
            lines = complaints(words)
            for flag, word in words.items():
                accepted[flag] |= set() if refusals[flag].replace(NONSENSE, word) in lines else {word}
        return accepted

    def config_keys(self):
        """The keys that docs/config.md lists and check-config knows. Another test compares the page with the code."""
        page = (ROOT / "docs/config.md").read_text(encoding="utf-8")
        rows = dict(re.findall(r"^\| `([a-z]\S*)` \| ([a-z ]+) \|", page, re.M))
        aliases = dict(re.findall(r"^\| as `(\S+)` \| `(\S+)` \|", page, re.M))
        inside = {f"{path}.{name}" for path, names in re.findall(r"^\| `(\S+)` \|.*; inside: `([^`]*)` \|$", page, re.M)
                  for name in names.split()}
        states = self.states({*rows, *aliases, NONSENSE})
        sections = {path.rpartition(".")[0] for path in rows}  # check-config does not show the state of these

        def known(path):
            return path in sections or states.get(path, states[NONSENSE]) != states[NONSENSE]

        found = {f"{path} {state.replace('honoured', 'honored')}" for path, state in rows.items() if known(path)}
        found |= {f"{path} as {other}" for path, other in aliases.items() if known(path)}
        found |= {f"{path} inside" for path in inside - self.unknown_inside(inside)}
        texts = re.findall(r"^\| `([a-z]\S*)` \| [a-z ]+ \| (`[^`]*` \| (?:`[^`]*`)?)", page, re.M)
        values = {f"{path} {text}" for path, cells in texts for text in re.findall(r'"\w+"', cells)}
        return {CONFIG: found, "texts that are values in ds_config.json": values, **self.types()}

    def types(self):
        """The values of two keys, which the page has in prose only."""
        found = {}
        for path in ("optimizer.type", "scheduler.type"):
            text = self.check_config({path}, NONSENSE)
            line = next(line for line in text.splitlines() if line.strip().startswith(f"{path}: "))
            found[f"values of {path}"] = set(re.findall(r"\b[A-Z]\w+", line))
        return found

    def check_config(self, paths, value=None):
        """What check-config prints about a file that has all these keys with this value."""
        root = {}
        for path in sorted(paths):
            *sections, name = path.split(".")
            section = root
            for part in sections:
                section[part] = section.get(part) or {}
                section = section[part]
            section.setdefault(name, value)
        with tempfile.TemporaryDirectory(prefix="zeroth-names.") as folder:
            file = pathlib.Path(folder, "ds_config.json")
            file.write_text(json.dumps(root), encoding="utf-8")
            return self.run("zeroth", "check-config", str(file))[1]

    def states(self, paths):
        lines = [line for line in self.check_config(paths).splitlines() if line.startswith("  ")]
        rows = [re.split(r"  +", line.strip()) for line in lines]
        return {row[0]: row[1] for row in rows if len(row) > 1}

    def unknown_inside(self, paths):
        """Those of the keys inside of refused sections that check-config reports as unknown."""
        keys = {path: path.replace("*", NONSENSE) for path in paths}
        tops = {path.split(".")[0] for path in paths}
        lines = []
        for top in sorted(tops):
            text = self.check_config({key for key in keys.values() if key.split(".")[0] == top})
            lines += [line.strip() for line in text.splitlines()]
        return {path for path, key in keys.items() if any(line.startswith(f"{key}: ") for line in lines)}
