"""`hyocr serve`: the model behind REST, OpenAI's API and a web page."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from ascend.errors import EngineUnavailable
from ascend.opening import ENGINES

_OPTIONS = (
    "model engine host port ui_port slots threads device precision api_keys max_queue deadline_s "
    "shutdown_grace_s canaries watch_s jobs_dir"
).split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `hyocr serve`; the file of --config has every other one."""
    parser.add_argument("--model", help="ppocr (default), reader, a folder, or a .yaml file")
    parser.add_argument("--engine", choices=ENGINES, help="default: what the model is made for")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML with `serve:`")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, help="of the API (default: 8000; 0: a free one)")
    parser.add_argument("--ui-port", type=int, help="of the web page (default: 7860)")
    parser.add_argument("--no-ui", action="store_true", help="no web page")
    parser.add_argument(
        "--served-name", action="append", metavar="NAME", help="another name of the model"
    )
    model = parser.add_argument_group("model and engine")
    model.add_argument("--slots", type=int, help="sequences at once (default: by the model)")
    model.add_argument("--threads", type=int, help="CPU threads (default: all)")
    model.add_argument("--device", type=int, help="NPU number")
    model.add_argument("--precision", help="fp32, bf16, int8 or int4, on the engine torch")
    limits = parser.add_argument_group("limits and changes")
    limits.add_argument("--api-keys", metavar="FILE", help="lines name:key[:requests a minute]")
    limits.add_argument("--max-queue", type=int, help="requests that may wait")
    limits.add_argument("--deadline-s", type=float, help="longest time of one request")
    limits.add_argument("--shutdown-grace-s", type=float, help="for what runs at the end")
    limits.add_argument("--canaries", metavar="DIR", help="pages that a new model must read alike")
    limits.add_argument("--jobs-dir", metavar="DIR", help="where jobs outlive the service")
    limits.add_argument("--watch-s", type=float, help="look for changed model files so often")


def run(args: argparse.Namespace) -> int:
    """0 after a graceful end; else the exit code of what kept the model from opening."""
    try:
        from ascend.serve.config import read_config
        from ascend.serve.server import ServiceServer, listen
    except ModuleNotFoundError as error:
        raise EngineUnavailable(
            f"the service needs the package {error.name}: pip install 'hunyuanocr-ascend[serve]'"
        ) from error
    given = {name: getattr(args, name) for name in _OPTIONS}
    given["served_names"] = tuple(args.served_name) if args.served_name else None
    config = read_config(args.config, given)
    logging.getLogger("ascend.serve").setLevel(logging.INFO)
    server = ServiceServer(config, listen(config.host, config.port), ui=not args.no_ui)
    server.serve_all()
    return 0
