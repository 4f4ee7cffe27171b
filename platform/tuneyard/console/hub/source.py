"""All pages of a hub, for its readers."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from tuneyard.console.hub.job_pages import JobPages
from tuneyard.console.hub.lists import Lists
from tuneyard.console.hub.past_pages import PastPages
from tuneyard.console.hub.reader import Readers
from tuneyard.console.hub.schedule_pages import SchedulePages
from tuneyard.console.streams import Streams


class HubJobs:
    """The JobSpecs, Schedules, history, Clusters and Teams of one hub. Each request is answered with the rights of its reader."""

    navigation = (
        ("/", "Overview"),
        ("/queue", "Queue"),
        ("/jobs", "Jobs"),
        ("/schedules", "Schedules"),
        ("/history", "History"),
        ("/clusters", "Clusters"),
        ("/teams", "Teams"),
    )

    def __init__(self, readers: Readers, *, most_streams: int = 40) -> None:
        self._readers = readers
        self.streams = Streams(most=most_streams, every_s=1.0)

    @property
    def label(self) -> str:
        return self._readers.label

    def close(self) -> None:
        self._readers.close()

    def router(self) -> APIRouter:
        router = APIRouter(default_response_class=HTMLResponse)
        pages = (Lists(self._readers), JobPages(self._readers, self.streams), SchedulePages(self._readers), PastPages(self._readers))
        for each in pages:
            router.include_router(each.router())
        return router
