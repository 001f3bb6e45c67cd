"""A small scanner for C++: blanks comments and literals, finds functions with their length and parameters.

It knows brackets and the heads of scopes, no grammar; that is enough for code in one style, formatted by clang-format.
"""
import re
from dataclasses import dataclass

LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/
      |(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"
      |"(?:\\.|[^"\\\n])*"
      |(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'""",
    re.S | re.X,
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
OPERATOR = re.compile(r"\boperator\s*(?:\(\s*\)|\[\s*\]|[^\w\s(]+)")
ACCESS = re.compile(r"\s*(?:public|private|protected)\s*")
NAMESPACE = re.compile(r"\b(?:namespace|extern)\b[^()]*$")
LAMBDA = re.compile(r"=[^;]*\[[^\]]*\]\s*(?:\([^;]*\))?[^;)]*$")
CLASS = re.compile(r"\b(?:class|struct|union|enum)\b")
ATTRIBUTE = re.compile(r"\[\[.*?\]\]", re.S)
NOT_A_NAME = {"alignas", "decltype", "explicit", "noexcept", "requires", "throw", "__attribute__", "static_assert"}
CLOSING = {")": "(", "]": "[", "}": "{", ">": "<"}


@dataclass
class Function:
    name: str
    line: int  # of its head
    lines: int  # head and body; 0: only declared
    parameters: int


def blank(text, pattern):
    """Replaces matches by spaces; lines, columns and a string's quotes stay."""

    def spaces(match):
        out = re.sub(r"[^\n]", " ", match.group())
        return f'"{out[1:-1]}"' if match.group()[0] in '"uULR' else out

    return pattern.sub(spaces, text)


def strip(text):
    """The code without comments and without what strings and characters hold."""
    return blank(text, LITERAL)


def groups(text):
    """(opening bracket, start, end) of each outermost bracket pair; < > count where they look like templates."""
    stack, found = [], []
    for i, c in enumerate(text):
        if c in "([{" or (c == "<" and re.search(r"[\w>]\s*$", text[max(0, i - 40) : i])):
            stack.append((c, i))
        elif c in ")]}" or (c == ">" and stack and stack[-1][0] == "<"):
            while stack and stack[-1][0] != CLOSING[c]:
                stack.pop()  # a "<" that was a comparison
            if stack:
                c, start = stack.pop()
                if not stack:
                    found.append((c, start, i))
    return found


def outside(text, found):
    """The text without what is inside its outermost brackets."""
    out, at = [], 0
    for _, start, end in found:
        out.append(text[at : start + 1])
        at = end
    return "".join(out) + text[at:]


def parameter_list(head):
    """(name, text between the parentheses) of the function that this head declares, or None."""
    head = ATTRIBUTE.sub(" ", OPERATOR.sub("operator_ ", head)).replace("->", "  ")
    for kind, start, end in groups(head):
        plain = outside(head[:start], groups(head[:start]))
        before = re.search(r"([~\w]+)\s*(?:<>)?\s*$", plain)
        if kind != "(" or not before or before.group(1) in NOT_A_NAME:
            continue
        if "=" in plain or re.search(r"\b(?:using|typedef)\b", plain):
            return None  # a variable or a type
        return before.group(1), head[start + 1 : end]
    return None


def count_parameters(text):
    text = text.strip()
    if text in ("", "void"):
        return 0
    return outside(text, groups(text)).count(",") + 1


def is_class(head):
    head = re.sub(r"\balignas\s*\([^()]*\)", " ", ATTRIBUTE.sub(" ", head))
    plain = outside(head, groups(head))
    return bool(CLASS.search(plain)) and "(" not in plain and "=" not in plain


def opens_initializer(head):
    """Whether a { after this head starts a value (also a member's, in a constructor's list) and not a body."""
    if parameter_list(head) is None:
        return True
    lists = re.search(r"\)[\w\s()]*?(?<!:):(?!:)", outside(head, groups(head)))
    return bool(lists and re.search(r"[\w>]\s*$", head))


def matching(code, start):
    depth = 0
    for i in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i
    return len(code) - 1


def functions(code):
    """All functions of stripped code that are declared or defined outside other functions, in their order."""
    code = blank(code, DIRECTIVE)
    found, begin, i, parens = [], 0, 0, 0

    def add(declared, end):
        """Adds what `begin` starts and `end` closes."""
        first = begin + len(head) - len(head.lstrip())
        line = code.count("\n", 0, first) + 1
        lines = code.count("\n", first, end) + 1 if code[end] == "}" else 0
        macro = declared[0].isupper() and len(declared[0]) > 1
        found.append(Function(declared[0], line, lines, 0 if macro else count_parameters(declared[1])))

    while i < len(code):
        c = code[i]
        head = code[begin:i] if c in "{};:" else ""
        if c in "()":
            parens += 1 if c == "(" else -1
        elif c == "{" and parens:
            i = matching(code, i)  # a default argument
        elif c == "{" and (NAMESPACE.search(head) or is_class(head)):
            i = matching(code, i) if re.search(r"\benum\b", head) else i
            begin = i + 1
        elif c == "{":
            i = matching(code, i)
            if not opens_initializer(head):
                add(parameter_list(head), i)
                begin = i + 1
            elif LAMBDA.search(head):
                add(("lambda", ""), i)
        elif c in ";}" and not parens:
            declared = parameter_list(head) if c == ";" else None
            if declared:
                add(declared, i)
            begin = i + 1
        elif c == ":" and not parens and ACCESS.fullmatch(head):
            begin = i + 1
        i += 1
    return found
