"""The options of `trainshed run`, as Typer reads them."""

from pathlib import Path
from typing import Annotated

import typer

Command = Annotated[
    list[str], typer.Argument(metavar="COMMAND", help="What to run, after the options: python train.py --lr 0.1")
]
Folder = Annotated[
    Path, typer.Option("--folder", metavar="FOLDER", help="Your code; it becomes the command's working folder.")
]
NoBundle = Annotated[
    bool, typer.Option("--no-bundle", help="Send no files: the command is in the worker's environment.")
]
MaxSize = Annotated[
    str, typer.Option("--max-size", metavar="SIZE", help="Refuse a folder with more than this before it is sent.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FOLDER", help="Where its files come to; else NAME-output or ID-output."),
]
Framework = Annotated[
    str | None, typer.Option("--framework", help="torch, tensorflow or python; else told by what the code imports.")
]
Devices = Annotated[int, typer.Option("--devices", min=1, help="How many devices of one host.")]
DeviceType = Annotated[str | None, typer.Option("--device-type", metavar="KIND", help="cuda or cpu.")]
Processes = Annotated[
    str | None, typer.Option("--processes", help="one, or per_device: the command once per device, as torchrun does.")
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="NAME=SOURCE", help="A data set's id, or a file to send; may be repeated."),
]
Requirements = Annotated[
    Path | None, typer.Option("--requirements", "-r", metavar="FILE", help="Packages to install beside the framework.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME=VALUE", help="A variable for the command; NAME alone takes yours. Repeatable."),
]
Network = Annotated[bool, typer.Option("--network", help="Let it reach the network, where the service allows that.")]
Success = Annotated[
    str | None, typer.Option("--success", help="files: exit code 0 and a file (the default); exit: the code is enough.")
]
Monitor = Annotated[
    str | None, typer.Option("--monitor", metavar="METRIC[:min|max]", help="Which checkpoint is the best.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="TRAINSHED_SEED of the command; 0 unless given.")]
Name = Annotated[str | None, typer.Option("--name", help="A name for people.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY:VALUE", help="May be repeated.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="The longest running time: 30m, 4h, 2d.")
]
Retries = Annotated[int | None, typer.Option("--retries", min=0, help="Further attempts after failures of its own.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Anything else in the spec: --set priority=5. Repeatable."),
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Submit, print the job's id, and leave.")]
CancelOnInterrupt = Annotated[
    bool, typer.Option("--cancel-on-interrupt", help="Ctrl-C cancels the job; without this it goes on.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be sent, and the spec; ask no server.")]
