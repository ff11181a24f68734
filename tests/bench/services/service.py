"""A service that is slow to start, for the section warm-start of scripts/bench: service.py PORT. What it answers is computed."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy
import pandas
import scipy.interpolate
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.stats

X = numpy.arange(1000.0)
FRAME = pandas.DataFrame({"x": X, "y": 2 * X + 1, "of": numpy.arange(1000) % 10})


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        slope = scipy.stats.linregress(FRAME["x"], FRAME["y"]).slope
        root = scipy.optimize.brentq(lambda x: x * x - 9, 0, 10)
        part = FRAME.groupby("of")["x"].sum()[3]
        body = f"slope {slope:.3f} root {root:.3f} part {part:.0f}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
