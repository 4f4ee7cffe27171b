"""The format of rows, and the role of each column, found by column names and values."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.prompt_templates import prompt_template
from tuneyard.data.bad_sample import BadSample
from tuneyard.data.forms import FORMS, Form, form_of
from tuneyard.data.meaning.numbers import is_number, whole_number_columns
from tuneyard.data.meaning.paths import is_path, structured, value_at, what_is_missing
from tuneyard.data.meaning.plausible import judgement, plausible, strangers, unused_parts
from tuneyard.data.meaning.role_names import NAMES, OPTIONAL, REQUIRED, FormatName, is_filled, is_media, role_named
from tuneyard.data.meaning.suggestions import misfits, suggestion
from tuneyard.data.meaning.unused import described_columns, found_columns, unused_columns
from tuneyard.data.messages import is_said, unpacked
from tuneyard.data.notations.speakers import with_strangers
from tuneyard.data.sample_types import Chat, Completion, Pair, Sample, Text, canonical_json
from tuneyard.data.templated import COLUMN, columns_of_places, own_columns, uses_prompt

__all__ = [
    "NAMES",
    "REQUIRED",
    "Chat",
    "Completion",
    "Pair",
    "Roles",
    "Sample",
    "Text",
    "canonical_json",
    "detect",
    "is_number",
    "judgement",
]

_SPOKEN = ("messages", "prompt", "completion", "chosen", "rejected")
_WITH_PROMPTS = ("preference", "prompt-completion")
_MEDIA_BESIDE_TEXT = ("image", "images", "audio", "audios", "video", "videos")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Roles:
    """The format of a data set, and the column of each role. `why`: how the format was found."""

    format: FormatName
    columns: Mapping[str, str]
    """Role -> column, or the path of a value; with a form, the columns that its `read` returns."""
    why: str
    as_messages: bool = False
    """A chat template renders the samples: prompts are lists of messages, or are made into such."""
    unused: tuple[tuple[str, Any], ...] = ()
    """Columns without a role that differ between rows or change their meaning, each with a value."""
    chat: bool = False
    """Pairs of plain texts become chats."""
    media: tuple[str, ...] = ()
    """Columns of images, sound or video."""
    form: str = ""
    """The form of the rows, by its name in the table of forms; empty for columns named for roles."""
    paths: tuple[str, ...] = ()
    """Those of `columns` that are paths."""
    whole: frozenset[str] = frozenset()
    """Columns whose whole numbers are written without a decimal point."""
    speakers: Mapping[str, str] = field(default_factory=dict)
    """Roles by further names of speakers."""
    known: frozenset[str] | None = None
    """Columns of the first rows; None: columns that come later are not looked at."""
    strangers: tuple[str, ...] = ()
    """Speakers in the first rows that have no usual role."""
    parts: tuple[tuple[str, Any], ...] = ()
    """Parts of messages that no sample uses, each with a value."""
    idle: tuple[str, ...] = ()
    """Columns that would have a role, and are empty in the first rows."""
    template: str = ""
    """`data.template`, which makes the prompt; empty: rows have their own."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Place of the template -> column or path."""

    @property
    def read_columns(self) -> tuple[str, ...]:
        """Columns and paths of the rows that samples use."""
        return (*(column for column in self.columns.values() if column != COLUMN), *self.places.values())

    @property
    def identity(self) -> list[Any]:
        """All that decides what a row becomes, as JSON."""
        known = sorted(self.known) if self.known is not None else None
        parts: list[Any] = [self.format, dict(self.columns), self.as_messages, self.chat, list(self.media), self.form, list(self.paths)]
        parts += [sorted(self.whole), dict(self.speakers), known, list(self.idle)]
        return [*parts, self.template, dict(self.places)] if self.template else parts

    def note(self) -> str | None:
        """A warning about unused columns; None where there are none."""
        if not self.unused:
            return None
        one = len(self.unused) == 1
        parts = ", ".join(role for role in (*REQUIRED[self.format], *OPTIONAL[self.format]))
        said = f"column{'' if one else 's'} {described_columns(self.unused)}"
        chats = self.format in ("prompt-completion", "preference") and not self.as_messages
        system = next((name for name, _ in self.unused if role_named(name) == "system"), "") if chats else ""
        more = f"; data.chat: true uses {system}" if system else ""
        return f"{said}; data.columns can give {'it' if one else 'them'} a part of {self.format}: {parts}{more}"

    def notes(self) -> list[str]:
        """What a user must know about the reading of these rows: what the form decides, and unused columns."""
        decided = f"form {self.form}: {FORMS[self.form].note}" if self.form and FORMS[self.form].note else None
        who = self.strangers
        named = ", ".join(f"{name}: {role}" for name, role in with_strangers(self.speakers, who).items())
        strange = f"speakers {', '.join(who)} have no usual role; data.roles gives them one, such as {{{named}}}" if who else None
        parts = f"in messages, {described_columns(self.parts)}" if self.parts else None
        return [note for note in (decided, strange, parts, self.note()) if note]


# --- detection --------------------------------------------------------------------------------------------------------------------


def detect(
    rows: Rows,
    *,
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    chat: bool = False,
    uri: str = "data",
    speakers: Mapping[str, str] | None = None,
    template: str | None = None,
) -> Roles:
    """Find format and roles from a few rows. `columns` (role -> column or path) wins over guesses and forms, `format` over the order of
    guesses. `chat`: pairs of plain texts become chats. `speakers`: roles by further names of speakers. `template`: makes the prompts.

    Raises BadInput where the columns fit no format, or not the requested one.
    """
    found = list(dict.fromkeys(name for row in rows for name in row))
    given = {role: column if column in found else column.strip() for role, column in (columns or {}).items()}
    _check_given(given, found, rows, uri)
    formats: list[FormatName] = list(REQUIRED) if format == "auto" else [f for f in REQUIRED if f == format]
    if format == "auto" and given:
        named = [f for f in REQUIRED if set(given) & set(REQUIRED[f])]
        formats = named or formats
    if template is not None:
        formats = [f for f in formats if f in _WITH_PROMPTS]
        if not formats:
            raise BadInput(f"{uri}: data.template makes prompts, and rows of format {format} have none", "leave data.template out")
    roles = _found(rows, found, given, formats, auto=format == "auto", chat=chat, uri=uri, template=template)
    if roles is None:
        raise _unknown(rows, found, formats, auto=format == "auto", uri=uri)
    if chat and roles.format == "text":
        raise BadInput(f"{uri}: data.chat is true, and rows are plain text ({roles.why})", "remove data.chat, or name other columns")
    speakers = {name.lower(): role for name, role in (speakers or {}).items()} | dict(speakers or {})  # in any case, as the usual names
    if roles.format == "text" or roles.form:
        return replace(roles, speakers=speakers)
    said = [value_at(row, column) for row in rows for role, column in roles.columns.items() if role in _SPOKEN]
    return replace(roles, speakers=speakers, strangers=strangers(said, speakers), parts=unused_parts(said))


def _found(
    rows: Rows,
    found: list[str],
    given: Mapping[str, str],
    formats: Sequence[FormatName],
    *,
    auto: bool,
    chat: bool,
    uri: str,
    template: str | None = None,
) -> Roles | None:
    as_they_are = bool(given) or (template is not None and bool(own_columns(template)))
    if not as_they_are and (form := form_of(rows, formats=formats if template is not None or not auto else ())):
        return _of_form(form, rows, chat=chat, uri=uri, template=template)
    for candidate in formats:
        if candidate == "text" and auto and not given:
            if form := form_of(rows, late=True):
                return _of_form(form, rows, chat=chat, uri=uri)
            if inner := _wrapped(rows, found, chat=chat, uri=uri):
                return inner
            if any(role_named(name) in ("messages", "chosen", "rejected") and _filled(rows, name) for name in found):
                return None  # such rows are no plain text
        roles = _match(candidate, rows, found, given, chat=chat, uri=uri, template=template)
        if roles is not None:
            return roles
    if template is not None:
        return None if as_they_are else _wrapped(rows, found, chat=chat, uri=uri, template=template)
    if auto and not chat and not given and len(found) == 1 and not role_named(found[0]):
        [only] = found
        if all(isinstance(row.get(only), str) for row in rows):
            return Roles("text", {"text": only}, f"the only column, {only}, holds text", known=frozenset(found))
    return None


def _unknown(rows: Rows, found: list[str], formats: Sequence[FormatName], *, auto: bool, uri: str) -> BadInput:
    wanted = "; ".join(f"{f}: {' + '.join('/'.join(NAMES[role]) for role in REQUIRED[f])}" for f in formats)
    wrong = misfits(rows)
    return BadInput(
        f"{uri}: {'of no known format' if auto else f'not of format {formats[0]}'}; columns found: {found_columns(rows)}; "
        f"{f'{wrong}; ' if wrong else ''}expected {wanted}",
        "labels (KTO) give no pairs: use objective: sft, which learns from answers labelled true"
        if list(formats) == ["preference"] and "label" in found
        else suggestion(rows),
    )


def _check_given(given: Mapping[str, str], found: list[str], rows: Rows, uri: str) -> None:
    for role, column in given.items():
        if role not in NAMES:
            raise BadInput(f"{uri}: data.columns: {role} is not a role", f"roles: {', '.join(NAMES)}")
        late = column.lower() in NAMES[role] and role in ("system", "tools", "label", "input")  # rows that come later may have it
        if column in found or late:
            continue
        if is_path(column) and rows:
            if any(value_at(row, column) is not None for row in rows):
                continue
            cause = f"{uri}: data.columns: {what_is_missing(rows[0], column)} (for the role {role})"
            raise BadInput(f"{cause}; columns found: {found_columns(rows)}", suggestion(rows))
        near = difflib.get_close_matches(column, found, n=1)
        raise BadInput(
            f"{uri}: no column {column} (for the role {role}); columns found: {found_columns(rows)}",
            f"did you mean {near[0]}?" if near else "correct data.columns",
        )


def _of_form(form: Form, rows: Rows, *, chat: bool, uri: str, template: str | None = None) -> Roles:
    """The roles of rows that have a form. Raises BadInput where rows of this form cannot be read."""
    if form.refusal is not None:
        cause, step = form.refusal
        raise BadInput(f"{uri}: {cause}; columns found: {found_columns(rows)}", step)
    shaped = []
    for row in rows:
        try:
            shaped.append(form.shaped(row))
        except BadSample:  # counted when all rows are read
            continue
    shaped = shaped or [form.read(form.example)]
    names = list(dict.fromkeys(name for row in shaped for name in row))
    given = {"input": "input"} if "input" in names else {}
    roles = _match(form.format, shaped, names, given, chat=chat, uri=uri, template=template)
    if roles is None:
        raise BadInput(f"{uri}: rows of the form {form.name} without {' or '.join(REQUIRED[form.format])}", suggestion(rows))
    fitting = next((row for row in rows if form.has(row)), form.example)
    uses = list(form.uses(fitting))
    found = frozenset(name for row in rows for name in row)
    return replace(
        roles, form=form.name, why=f"form: {form.name}, from {', '.join(uses)}", unused=unused_columns(rows, uses), known=found, idle=()
    )


def _wrapped(rows: Rows, found: list[str], *, chat: bool, uri: str, template: str | None = None) -> Roles | None:
    """Roles of rows that stand inside one column: `_source`, `row`, `record`. None where none or several columns hold rows."""
    inner = {}
    for column in found:
        inside = [value for row in rows if isinstance(value := structured(row.get(column)), Mapping)]
        if len(inside) * 2 > len(rows):
            names = list(dict.fromkeys(name for row in inside for name in row))
            roles = next((r for f in REQUIRED if f != "text" and (r := _match(f, inside, names, {}, chat=chat, uri=uri))), None)
            if roles is not None:
                inner[column] = roles
    if len(inner) != 1:
        return None
    [(column, roles)] = inner.items()
    columns = {role: f"{column}.{name}" for role, name in roles.columns.items()}
    given = _match(roles.format, rows, found, columns, chat=chat, uri=uri, template=template)
    return given and replace(given, why=f"columns inside {column}: {', '.join(roles.columns)}")


def _match(
    format: FormatName,
    rows: Rows,
    found: list[str],
    given: Mapping[str, str],
    *,
    chat: bool,
    uri: str,
    template: str | None = None,
) -> Roles | None:
    """The roles in a format; None where the columns do not fit it. Raises BadInput for a given role that is of no use."""
    made = own_columns(template) if template is not None else ()
    unneeded = () if uses_prompt(template) else ("prompt", "input")
    lower = {name.lower(): name for name in reversed(found)}
    chosen: dict[str, str] = {}
    as_chat = chat and format in ("prompt-completion", "preference")
    for role in (*REQUIRED[format], *OPTIONAL[format], *(("system",) if as_chat else ())):
        if role in unneeded:
            if role in given and role not in prompt_template(template or "").places:
                raise BadInput(
                    f"{uri}: data.columns: {role}: data.template makes the prompt without it", f"write {{{role}}} into the template"
                )
            continue
        names = (*NAMES[role], *(NAMES["messages"] if (format, role) == ("preference", "prompt") else ()))
        taken = [*chosen.values(), *given.values(), *made]
        guesses = [lower[name] for name in names if name in lower and lower[name] not in taken]
        column = given.get(role) or next((g for g in guesses if plausible(role, rows, g, of_pairs=format != "chat")), None)
        if column is not None:
            chosen[role] = column
    if not all(role in chosen for role in REQUIRED[format] if role not in unneeded):
        return None
    if chosen.get("input") and chosen.get("prompt", "").lower() != "instruction" and "input" not in given:
        del chosen["input"]  # `context` beside `question` is common, but only alpaca's instruction is meant to include it
    main = "messages" if format == "chat" else "chosen" if format == "preference" else "prompt" if format == "prompt-completion" else "text"
    as_messages = as_chat or any(
        is_said(value_at(row, chosen[role])) for row in rows for role in {main, "prompt"} & {*chosen} if format != "text"
    )
    if format == "prompt-completion" and as_messages and not as_chat:  # a chat template renders them
        for role in ("system", "tools"):
            column = next((lower[name] for name in NAMES[role] if name in lower and plausible(role, rows, lower[name])), None)
            if column is not None and column not in chosen.values():
                chosen[role] = column
    if format == "preference" and not as_messages:
        for role in [role for role in ("tools", "system") if chosen.pop(role, None) and role in given]:
            raise BadInput(f"{uri}: data.columns: {role}: only a chat template renders it; these pairs are texts", "set data.chat: true")
    spelled = ", ".join(f"{role} = {column}" if role != column else role for role, column in chosen.items())
    places = columns_of_places(template, rows, chosen, uri) if template is not None else {}
    used = {*chosen.values(), *places.values()}
    media = tuple(n for n in found if n not in used and (n.lower() in _MEDIA_BESIDE_TEXT if format == "text" else is_media(n)))
    useful = (*OPTIONAL[format], *(("system",) if as_chat else ()))
    known_as = _known_as(rows, chosen)
    whole = whole_number_columns(rows, used)
    if template is not None:
        spelled += f"; prompts by the template from {', '.join(places.values())}"
        chosen = {role: column for role, column in chosen.items() if role != "input"} | {"prompt": COLUMN}
    return Roles(
        format,
        chosen,
        f"columns {spelled}{' (given)' if given else ''}{known_as}",
        as_messages,
        unused_columns(rows, used),
        as_chat,
        media,
        paths=tuple(column for column in chosen.values() if column != COLUMN and is_path(column) and column not in found),
        whole=whole,
        known=frozenset(found),
        idle=tuple(name for name in found if name not in used and role_named(name) in useful and not _filled(rows, name)),
        template=template or "",
        places=places,
    )


def _known_as(rows: Rows, chosen: Mapping[str, str]) -> str:
    """The well-known name of a variant of a format; empty where it has none."""
    first = rows[0] if rows else {}
    turns = unpacked(value_at(first, chosen.get("messages", "")))
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]:
        return ": ShareGPT's names"
    if "label" in chosen:
        return ": KTO's labels"
    if "input" in chosen and chosen.get("prompt", "").lower() == "instruction":
        return ": Alpaca's"
    if "chosen" in chosen and "prompt" not in chosen and isinstance(first.get(chosen["chosen"]), str):
        return ": whole dialogues, as HH's"
    return ""


def _filled(rows: Rows, column: str) -> bool:
    return any(is_filled(row.get(column)) for row in rows)
