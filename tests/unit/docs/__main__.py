"""`python -m tests.unit.docs`: how many commands, snippets and links of README and docs the tests check."""

from collections import Counter
from pathlib import Path

from tests.unit.docs.commands import CHECKED, lines_of
from tests.unit.docs.markdown import manual, pages
from tests.unit.docs.test_docs_snippets import COMMANDS, COMPILED_ONLY, PYTHON, YAML

lines = [line for page in manual() for line in lines_of(page)]
by_program = Counter(Path(line.program).name for line in lines if line.program in CHECKED)
print(f"{sum(by_program.values())} commands compared with their parser: {', '.join(f'{n} {name}' for name, n in by_program.most_common())}")
print(f"{len(lines) - sum(by_program.values())} commands of other programs: the files of this repository that they name exist")
print(f"{len(COMMANDS)} commands run")
print(f"{len(YAML)} YAML examples loaded")
print(f"{sum(block.page not in COMPILED_ONLY for block in PYTHON)} of {len(PYTHON)} Python snippets run, the others are compiled")
print(f"{sum('://' not in target for page in pages() for _, target in page.links)} links followed")
