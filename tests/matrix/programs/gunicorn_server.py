"""gunicorn with two workers that answers a request and ends on SIGTERM."""

import http.client
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from counts import tell

# In the working directory: a path to a socket must be short.
ADDRESS = "server"


def application(environ, start_response):
    """Answers with the path and the number of CPUs."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{environ['PATH_INFO']} {os.cpu_count()}".encode()]


if __name__ == "__main__":
    Path(ADDRESS).unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(ADDRESS)
        listener.listen()
        # gunicorn is given the socket as systemd would: whoever connects is answered as soon as a worker is there.
        command = [sys.executable, "-m", "gunicorn", "--workers", "2", "--no-control-socket"]
        command += ["--pythonpath", str(Path(__file__).parent), "--bind", f"fd://{listener.fileno()}"]
        server = subprocess.Popen([*command, "gunicorn_server:application"], pass_fds=[listener.fileno()])
        try:
            client.settimeout(60)
            client.connect(ADDRESS)
            connection = http.client.HTTPConnection("localhost")
            connection.sock = client
            connection.request("GET", "/hello")
            answer = connection.getresponse().read().decode()
            server.send_signal(signal.SIGTERM)
            print(answer.split()[0], server.wait())
        finally:
            server.kill()
    tell({"os.cpu_count of a worker": int(answer.split()[1])})
