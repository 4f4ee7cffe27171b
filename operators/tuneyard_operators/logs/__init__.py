"""The logs of jobs as an aggregated API (`logs.tuneyard.dev`), for readers with the right to `get` jobspecs/log.

1. A reader sends a query to the API server of the hub's cluster, which authenticates the reader.
2. The API server passes the query on to this program (`server`) over TLS. It trusts the certificate that this program makes
   (`certificates`), presents its own front-proxy certificate, and names the reader in headers (`front_proxy`).
3. This program asks the API server whether the reader has the right (`permissions`). A job whose JobSpec is gone is read from history.
4. It opens the job's storage with the job's own keys (`storage_keys`), and answers with a bounded part of the log (`log_reader`,
   `storage`). The number of concurrent queries is limited (`limits`).

Every replica of the hub serves, leader or not: it keeps state between queries for seconds only.
"""

from tuneyard_operators.logs.listener import AddTo, serve_logs
from tuneyard_operators.logs.server import Gone

__all__ = ["AddTo", "Gone", "serve_logs"]
