"""Files of people and of exporters, in the formats that these write, with the reading that is right for each."""

from benchmarks.real_exports import chats, people, preferences, questions, traces, unseen
from benchmarks.real_exports.case import Case

GROUPS: dict[str, list[Case]] = {
    "Chats": chats.CASES,
    "Preferences": preferences.CASES,
    "Traces and labels": traces.CASES,
    "Public data sets": questions.CASES,
    "Files of people": people.CASES,
    "Written after the forms": unseen.CASES,
}
