# SPDX-License-Identifier: Apache-2.0
"""FleetMember: how a job under the power limit optimizer is a member of the fleet of a server.
libharpe talks to the server."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Optional, Union

from harpe import _bindings as b
from harpe._library import InvalidArgumentError, encoded

__all__ = ["FleetMember"]


@dataclass
class FleetMember:
    """The job follows the power budgets of a server (docs/fleet.md): when all limits are measured,
    it runs the limit that the server asks for, but never a higher limit than its selector has
    chosen. Training never waits for the server. In a job of several processes, one of them talks to
    the server.

    server_url: such as "http://head-node:7787"; None: $HARPE_SERVER. If that is not set either, or
        for "", the job is no member of a fleet.
    name: the job's name, which no other member has; None: made from host, job and a random number.
    group: the group of the member; None: none.
    weight: the value of the job's time, above 0 and at most 1e12.
    max_slowdown: largest accepted time, as a multiple of the fastest plan's, 1 to 1e9; None: any.
    hold_s: if the server gives no limit for so many seconds (above 0), the job runs the limit that
        its selector has chosen. math.inf: it keeps the last limit that the server has asked for.
    token: the server's token; None: $HARPE_TOKEN.
    ca_file: certificates with which a server with TLS is checked; None: those in HARPE_CA_FILE
        or SSL_CERT_FILE, or the system's.
    """

    server_url: Optional[str] = None
    name: Optional[str] = None
    group: Optional[str] = None
    weight: float = 1.0
    max_slowdown: Optional[float] = None
    hold_s: float = 3600.0
    token: Optional[str] = field(default=None, repr=False)
    ca_file: Union[str, "os.PathLike[str]", None] = None

    def _options(self) -> b.harpe_power_limit_fleet:
        """Returns the options for C, where a number of 0 means the default."""
        for name, value, bounds in (("weight", self.weight, "above 0"),
                                   ("max_slowdown", self.max_slowdown, "at least 1"),
                                   ("hold_s", self.hold_s, "above 0")):
            if value == 0:
                raise InvalidArgumentError(f"fleet: {name} must be {bounds}, not {value}",
                                           b.HARPE_INVALID_ARGUMENT)
        url = os.environ.get("HARPE_SERVER") if self.server_url is None else self.server_url
        slowdown = 0.0 if self.max_slowdown is None else self.max_slowdown
        return b.harpe_power_limit_fleet(
            server_url=encoded(url), member=encoded(self.name), group=encoded(self.group),
            weight=self.weight, max_slowdown=slowdown, hold_s=self.hold_s,
            token=encoded(self.token), ca_file=encoded(self.ca_file))
