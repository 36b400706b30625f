"""A stand-in for the hub: the answers that it gives, and those that it must not be believed.

The repository's name says how it behaves; `files` has the contents.
"""

import hashlib
import http.server
import ssl
import threading
import time

COMMIT = "734450e9ffe229074f5998494ddc615475cdb20a"


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def send(self, code, headers=(), content=b"", body=True):
        self.send_response(code)
        for name, value in headers:
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def answer(self, body):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        if self.path.startswith("/cdn/"):
            return self.storage(body)
        if self.path.startswith("/cache/"):
            _, _, repo, name = self.path.split("/", 3)
            content = self.server.files[name]
            return self.send(200, [("ETag", f'"{git_sha1(content)}"')], content, body)
        organisation, repo, _, revision, name = self.path.lstrip("/").split("/", 4)
        return self.resolve(repo, revision, name, body)

    def resolve(self, repo, revision, name, body):
        port = self.server.server_address[1]
        n_seen = sum(path == self.path for _, path, _ in self.server.seen)
        if repo == "gone":
            return self.send(404, [("X-Error-Code", "RepoNotFound")])
        if repo == "gated":
            return self.send(401, [("X-Error-Code", "GatedRepo")])
        if repo in ("private", "denied"):
            return self.send(401 if repo == "private" else 403)
        if repo == "limited":
            return self.send(429)
        if repo == "broken" or (repo == "flaky" and n_seen < 3):
            return self.send(503)
        if repo == "busy" and n_seen < 2:
            return self.send(429)
        if repo == "no-revision":
            return self.send(404, [("X-Error-Code", "RevisionNotFound")])
        if repo == "page":
            return self.send(200, [("Content-Type", "text/html")], b"<html>sign in</html>", body)
        if name not in self.server.files:
            return self.send(404, [("X-Error-Code", "EntryNotFound")])
        content = self.server.files[name]
        commit = "0" * 40 if repo == "other-commit" else COMMIT
        if not name.endswith(".safetensors"):  # git's own files: a relative redirect to a cache
            headers = [("X-Repo-Commit", commit), ("ETag", f'"{git_sha1(content)}"')]
            if repo == "plain":
                return self.send(200, headers, content, body)
            if repo == "endless":
                return self.endless(headers, body)
            return self.send(307, headers + [("Location", f"/cache/{repo}/{name}")])
        where = {
            "to-http": "http://192.0.2.1/cdn/to-http/",
            "to-ftp": "ftp://127.0.0.1/cdn/to-ftp/",
            "loop": None,
            "other-host": f"http://localhost:{port}/cdn/other-host/",
        }.get(repo, f"/cdn/{repo}/")
        location = self.path if where is None else where + name
        digest = hashlib.sha256(content).hexdigest()
        if repo == "wrong-hash":
            digest = hashlib.sha256(b"something else").hexdigest()
        headers = [("X-Repo-Commit", commit), ("X-Linked-Etag", f'"{digest}"'),
                   ("X-Linked-Size", str(len(content))), ("ETag", '"page"'),
                   ("Location", location)]
        if repo == "no-hash":
            headers = [("Location", location), ("X-Repo-Commit", commit)]
        return self.send(302, headers)

    def endless(self, headers, body):
        """A body of no announced length that goes on until the client leaves."""
        self.send_response(200)
        for name, value in headers + [("Connection", "close")]:
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        try:
            while body and not self.server.stopping.is_set():
                self.wfile.write(b"more" * 4096)
        except OSError:
            pass

    def storage(self, body):
        _, _, repo, name = self.path.split("/", 3)
        content = self.server.files[name]
        length = [("Content-Length", str(len(content)))]
        first = sum(path == self.path for _, path, _ in self.server.seen) == 1
        if repo == "no-hash":
            return self.send(200, [], content, body)
        if repo == "storage-down":
            return self.send(500)
        if repo == "forbidden":
            return self.send(403, [], b"<Error>AccessDenied</Error>", body)
        if repo == "short":  # a whole answer of too few bytes
            return self.send(200, [], content[:-1], body)
        if repo == "long":
            return self.send(200, [], content + b"!", body)
        if repo == "cut" or (repo == "cut-once" and first):  # a promise that is not kept
            self.send(200, length, content[: len(content) // 2], body)
            self.close_connection = True
            return None
        if repo == "drip" or (repo == "killed" and first):
            self.send(200, length, b"", body)
            for i in range(len(content)):
                try:
                    self.wfile.write(content[i : i + 1])
                    self.wfile.flush()
                except OSError:
                    break
                if self.server.stopping.wait(0.05):
                    break
            self.close_connection = True
            return None
        if repo == "slow":
            time.sleep(0.3)
        return self.send(200, [], content, body)


class StandIn:
    """Listens until close(). certificate: a PEM file of certificate and key; None: plain HTTP."""

    def __init__(self, files, certificate=None):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.server.handle_error = lambda request, address: None  # the client hangs up
            scheme = "https"
        self.server.daemon_threads = True
        self.server.files = files
        self.server.seen = []
        self.server.stopping = threading.Event()
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        self.endpoint = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"

    @property
    def seen(self):
        return self.server.seen

    def close(self):
        self.server.stopping.set()
        self.server.shutdown()
        self.server.server_close()
