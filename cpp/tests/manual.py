#!/usr/bin/env python3
"""Takes the C++ out of docs/guide/client-cpp.md and client-mail.md: the manual is compiled and run.

    manual.py tests MANUAL [IN] the blocks ```cpp snippet, as tests named by their headings (`snippet 20`: C++20 only), IN the fixture of IN.hpp
    manual.py program MANUAL    the first block ```cpp, which is a whole program
"""
import re
import sys

PREAMBLE = """// Made by manual.py from docs/guide.
#include <future>

#include "%s.hpp"

"""


def blocks(text):
    """Each block of C++ with the heading above it and the words behind `cpp`."""
    heading = ""
    lines = iter(text.split("\n"))
    for line in lines:
        if line.startswith("## "):
            heading = line[3:]
        opened = re.fullmatch(r"```cpp( .*)?", line)
        if opened:
            code = []
            for inner in lines:
                if inner == "```":
                    break
                code.append(inner)
            yield heading, (opened.group(1) or "").split(), "\n".join(code)


def tests(text, fixture):
    out = [PREAMBLE % fixture]
    names = {}
    for heading, words, code in blocks(text):
        if words[:1] != ["snippet"]:
            continue
        name = re.sub(r"[^a-z0-9]+", "_", heading.lower()).strip("_")
        names[name] = names.get(name, 0) + 1
        test = f"TEST_F({fixture}, {name}_{names[name]}) {{\n{code}\n}}\n"
        if "20" in words:
            test = f"#ifdef MANUAL_HAS_COROUTINES\n{test}#endif\n"
        if "nlohmann" in code:
            test = f"#if __has_include(<nlohmann/json.hpp>)\n{test}#endif\n"
        out.append(test)
    return "\n".join(out)


def program(text, _fixture):
    return next(code for _, words, code in blocks(text) if not words) + "\n"


if __name__ == "__main__":
    made = {"tests": tests, "program": program}[sys.argv[1]]
    with open(sys.argv[2], encoding="utf-8") as manual:
        sys.stdout.write(made(manual.read(), (sys.argv[3:] or ["manual"])[0]))
