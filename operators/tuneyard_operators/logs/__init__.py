"""The logs of jobs as an aggregated API (`logs.tuneyard.dev`), for readers with the right to `get` jobspecs/log.

A reader asks the API server of the hub's cluster, which knows who they are. It passes the question on to this program (`server`), over TLS:
it trusts the certificate that this program makes (`certificates`), and shows its own front-proxy certificate, beside headers that name the
reader (`front_proxy`). This program asks the API server whether the reader may (`permissions`), opens the job's storage with the job's own
keys (`storage_keys`), and answers a bounded part (`log_reader`, `storage`), within limits on how much is asked at once (`limits`).

Every replica of the hub serves, whether it leads or not: nothing is kept between questions but for seconds.
"""

from tuneyard_operators.logs.listener import serve_logs

__all__ = ["serve_logs"]
