"""An object store for tests: moto's server, which speaks S3 over HTTP and keeps everything in its memory."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.fs

from tests.support.ports import free_port

DEADLINE_S = 60.0

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "minikafka",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_EC2_METADATA_DISABLED": "true",  # else who has no keys asks the network for some
}
"""In the environment, where a user has them."""

BUCKET = "lake"


class ObjectStore:
    """A server with one empty bucket. ``CREDENTIALS`` must be in the environment."""

    def __init__(self, log: Path) -> None:
        self.port = free_port()
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not self._is_up():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        settings = f"{self.uri('')}&allow_bucket_creation=true"
        self._files, _ = pyarrow.fs.FileSystem.from_uri(settings)
        self._files.create_dir(BUCKET)

    def __repr__(self) -> str:
        return f"<ObjectStore 127.0.0.1:{self.port}>"

    def uri(self, path: str) -> str:
        """As a user gives it; ``path`` is in the bucket."""
        place = f"{BUCKET}/{path}".rstrip("/")
        return f"s3://{place}?endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def table_uri(self, path: str) -> str:
        """As ``environment`` makes it known."""
        return f"s3://{BUCKET}/{path}"

    def environment(self) -> dict[str, str]:
        """How the tables of an export find it."""
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}", "AWS_REGION": "us-east-1"}

    def names(self, path: str) -> set[str]:
        """Every object below ``path``, relative to it."""
        chosen = pyarrow.fs.FileSelector(f"{BUCKET}/{path}", recursive=True, allow_not_found=True)
        found = self._files.get_file_info(chosen)
        return {
            info.path.removeprefix(f"{BUCKET}/{path}/")
            for info in found
            if info.type is pyarrow.fs.FileType.File
        }

    def upload(self, source: Path, path: str) -> None:
        """A directory with all that is in it."""
        pyarrow.fs.copy_files(
            str(source), f"{BUCKET}/{path}", pyarrow.fs.LocalFileSystem(), self._files, use_threads=False
        )

    def download(self, path: str, target: Path) -> None:
        """The same the other way."""
        target.mkdir(parents=True)
        pyarrow.fs.copy_files(
            f"{BUCKET}/{path}", str(target), self._files, pyarrow.fs.LocalFileSystem(), use_threads=False
        )

    def s3a_settings(self) -> dict[str, str]:
        """How Hadoop's connector finds it."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{self.port}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }

    def revoke_keys(self, *, after_requests: int = 0) -> None:
        """No key counts any more; until now each did."""
        self._ask("POST", "/moto-api/reset-auth", str(after_requests))

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _is_up(self) -> bool:
        try:
            self._ask("GET", "/moto-api/")
        except OSError:
            return False
        return True

    def _ask(self, method: str, path: str, body: str = "") -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.request(method, path, body, {"Content-Type": "text/plain"})
            response = connection.getresponse()
            assert response.status == 200, response.read()
        finally:
            connection.close()
