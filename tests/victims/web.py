"""A web server, nginx with workers or http.server with threads, and clients that keep their connections."""

import hashlib
import http.client
import os
import signal
import sys

import steps

NGINX = """
daemon off; worker_processes 2; error_log error.log; pid nginx.pid;
events {{ worker_connections 64; }}
http {{
    access_log access.log; keepalive_timeout 600; keepalive_requests 100000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""
HTTP_SERVER = """
import functools, http.server, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments):
        pass
handler = functools.partial(Handler, directory="www")
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), handler).serve_forever()
"""
FILES, CLIENTS = 20, 4


def start(kind, port):
    if kind == "nginx":
        os.chmod(".", 0o755)
        with open("nginx.conf", "w") as file:
            file.write(NGINX.format(port=port, root=os.path.abspath("www")))
        return steps.server(port, "/usr/sbin/nginx", "-p", os.getcwd(), "-c", os.path.abspath("nginx.conf"))
    return steps.server(port, sys.executable, "-c", HTTP_SERVER, str(port))


kind = sys.argv[2]
os.makedirs("www", exist_ok=True)
for number in range(FILES):
    with open(f"www/{number}", "wb") as file:
        file.write(b"%d" % number * 1500)
port = steps.free_port()
server = start(kind, port)
clients = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(CLIENTS)]
digest = hashlib.sha1()
for number in range(1, steps.STEPS + 1):
    for client in clients:
        client.request("GET", f"/{number % FILES}")
        answer = client.getresponse()
        assert answer.status == 200
        digest.update(answer.read())
    steps.step(number, digest.hexdigest())
for client in clients:
    client.close()
server.send_signal(signal.SIGQUIT if kind == "nginx" else signal.SIGTERM)
steps.over(server, 0, -signal.SIGTERM)
