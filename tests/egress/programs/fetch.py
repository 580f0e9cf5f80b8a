"""Fetches a URL; prints the status and the body. `-` first: without any proxy."""

import sys
import urllib.error
import urllib.request

direct = sys.argv[1] == "-"
handlers = [urllib.request.ProxyHandler({})] if direct else []
opener = urllib.request.build_opener(*handlers)
try:
    answer = opener.open(sys.argv[-1], timeout=20)
except urllib.error.HTTPError as error:
    answer = error
with answer:
    print(answer.status)
    print(answer.read().decode())
