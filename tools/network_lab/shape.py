"""The description of a network: hosts with ranks and adapters, switches, and the links between.

As JSON (docs/network.md):
  {"hosts": [{"name": "h0", "ranks": 2}], "switches": [{"name": "s0"}],
   "links": [{"between": ["h0", "s0"], "rate_mbps": 200, "buffer_ms": 50}]}
What `ropewalk simulate` alone heeds, latency_us and costs, is kept.
"""
import dataclasses
import json
import re

from network_lab.failure import Failure

NAME = r"[a-z][a-z0-9]{0,9}"  # with ".7" the name of an interface: at most 15 characters
HOSTS_MAX = 250
NUMBERS = {"rate_mbps": (0.1, 400_000), "buffer_ms": (0.1, 10_000),
           "bucket_kib": (2, 1024), "delay_ms": (0, 10_000),
           "jitter_ms": (0, 10_000), "latency_us": (0, 1e9), "loss_percent": (0, 100), "reorder_percent": (0, 100)}


@dataclasses.dataclass(frozen=True)
class Link:
    """Both directions alike. A link between a host and a switch is an adapter of the host."""
    between: tuple
    rate_mbps: float = None  # 10^6 bits a second; None: not limited
    buffer_ms: float = 50    # how long a packet may wait in the queue before it is dropped
    bucket_kib: float = 32   # how much passes at once after a pause
    delay_ms: float = 0      # these four need netem in the kernel
    jitter_ms: float = 0
    loss_percent: float = 0
    reorder_percent: float = 0
    latency_us: float = 0    # of the simulator: what the link has by itself

    @property
    def needs_netem(self):
        return any((self.delay_ms, self.jitter_ms, self.loss_percent, self.reorder_percent))


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    ranks: int = 1


@dataclasses.dataclass(frozen=True)
class Shape:
    hosts: tuple
    switches: tuple  # names
    links: tuple
    costs: dict = dataclasses.field(default_factory=dict)  # of the simulator

    def __post_init__(self):
        check(self)

    def adapters(self, host):
        return [link for link in self.links if host in link.between]

    def networks(self):
        """Sets of switches that are joined, in the order of the first adapters that lead there."""
        left, found = list(self.switches), []
        while left:
            reached, grown = {left[0]}, True
            while grown:
                more = {end for link in self.links for end in link.between
                        if reached & set(link.between) and end in self.switches} - reached
                reached |= more
                grown = bool(more)
            found.append(reached)
            left = [name for name in left if name not in reached]
        return found

    def as_json(self):
        def link_of(link):
            return {name: value for name, value in dataclasses.asdict(link).items() if value}
        return json.dumps({"hosts": [dataclasses.asdict(host) for host in self.hosts],
                           "switches": [{"name": name} for name in self.switches],
                           "links": [link_of(link) for link in self.links],
                           **({"costs": self.costs} if self.costs else {})}, indent=1)


def fail(text):
    raise Failure(f"the network: {text}", 2)


def check(shape):
    names = [host.name for host in shape.hosts] + list(shape.switches)
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(NAME, name) or name == "head":
            fail(f"{name!r} cannot be a name; write up to 10 of a-z, 0-9, a letter first, not head")
        if names.count(name) > 1:
            fail(f"two are called {name}")
    if not 1 <= len(shape.hosts) <= HOSTS_MAX or not shape.switches:
        fail(f"1 to {HOSTS_MAX} hosts are possible, and at least a switch is needed")
    for host in shape.hosts:
        if not isinstance(host.ranks, int) or not 1 <= host.ranks <= 1024:
            fail(f"{host.name} has {host.ranks!r} ranks; 1 to 1024 are possible")
    for link in shape.links:
        check_link(link, shape)
    for network in shape.networks():
        check_network(network, shape)


def check_link(link, shape):
    where = f"the link between {' and '.join(map(str, link.between))}"
    if len(link.between) != 2 or link.between[0] == link.between[1]:
        fail(f"{where} must have two different ends")
    hosts = {host.name for host in shape.hosts}
    for end in link.between:
        if end not in hosts and end not in shape.switches:
            fail(f"{where}: there is no {end}")
    if set(link.between) <= hosts:
        fail(f"{where} joins two hosts; put a switch between them")
    for name, (low, high) in NUMBERS.items():
        value = getattr(link, name)
        if value is not None and (not isinstance(value, (int, float)) or not low <= value <= high):
            fail(f"{where}: {name} is {value!r}; {low:g} to {high:g} is possible")


def check_network(network, shape):
    trunks = [link for link in shape.links if set(link.between) <= network]
    if len(trunks) != len(network) - 1:
        fail(f"the links between the switches {', '.join(sorted(network))} make a ring; leave one out")
    for host in shape.hosts:
        count = sum(bool(set(link.between) & network) for link in shape.adapters(host.name))
        if count != 1:
            fail(f"{host.name} has {count} adapters on the network of {min(network)}; it must be one")


def read(path):
    """Throws Failure that says what is wrong with the file."""
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        unknown = sorted(set(told) - {"hosts", "switches", "links", "costs"})
        if unknown:
            raise TypeError(f"{unknown[0]!r} is no field that is known")
        return Shape(tuple(Host(**host) for host in told["hosts"]),
                     tuple(switch["name"] for switch in told["switches"]),
                     tuple(Link(**(link | {"between": tuple(link["between"])}))
                           for link in told["links"]), told.get("costs", {}))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", 2) from error
    except KeyError as error:
        raise Failure(f"{path}: {error} is missing; see docs/network.md", 2) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise Failure(f"{path} is no description of a network: {error}; see docs/network.md",
                      2) from error


def regular(hosts, ranks, racks, adapters, link, uplink, changes):
    """Equal hosts at one switch, or in racks whose switches have an uplink to a core switch; the
    same once more for every further adapter. `changes`: of all links of a host, by its number, and
    of its ranks."""
    changes = {host: dict(fields) for host, fields in changes.items()}
    ranks_of = {host: fields.pop("ranks") for host, fields in changes.items() if "ranks" in fields}
    switches, links = [], []
    for number in range(adapters):
        suffix = chr(ord("a") + number) if adapters > 1 else ""
        racks_here = [f"rack{rack}{suffix}" for rack in range(racks)] if racks > 1 else [f"s0{suffix}"]
        switches += racks_here
        for host in range(hosts):
            own = dataclasses.replace(link, **changes.get(host, {}))
            links.append(dataclasses.replace(
                own, between=(f"h{host}", racks_here[host * len(racks_here) // hosts])))
        if racks > 1:
            switches.append(f"core{suffix}")
            links += [dataclasses.replace(uplink, between=(rack, f"core{suffix}"))
                      for rack in racks_here]
    return Shape(tuple(Host(f"h{host}", ranks_of.get(host, ranks)) for host in range(hosts)),
                 tuple(switches), tuple(links))
