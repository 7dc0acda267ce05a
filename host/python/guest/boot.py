# Runs once, with the files below it as one text, as the program of the interpreter whose memory becomes the image of all Python agents.
# It leaves a function behind, _skep_turn, which the host calls in each copy, and the module skep, which agents import.
#
# The device is how guest and host speak. A write is one message: a letter and its body. Messages that are answered are
# followed by reads: four bytes of length, little-endian, and as many of content.
import base64
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import types

_DEVICE = 0


def _send(op, body=b""):
    os.write(_DEVICE, op + body)


def _receive():
    n = int.from_bytes(os.read(_DEVICE, 4), "little")
    return os.read(_DEVICE, n) if n else b""
