"""How exchanges scale from 2 to 1,024 ranks, computed from measurements between two.

usage: python3 benches/simulate_ranks.py [--per-host 8] [--nvlink 360] [--nic 50] [--output FILE]

A rank is a GPU. Ranks of a host have NVLink between them, and each has a network card of its own to other hosts. Per exchange and round every
rank tells all others a control block (its size is that of src/gpu/exchange/message.rs), and then sends each a part of what its outbox holds.
Two groups of transfers are on their way at once, so a round takes as long as the longer of gather and transfers.

    direct       every rank sends to every other one
    two levels   rows go between hosts, to the rank of the sender's place there, and then within hosts (src/plan/distribute/levels.rs): two exchanges,
                 one beside the other but for the first round
    by hosts     the same, and control blocks go by one rank a host, which nothing does yet

Checked against the raw transfers of two GPUs in benches/results/2026-11-25-two-gpus.md: the table at the beginning has both. What is not measured
says so: the network card, the time of a message beside others, of a control block by a socket, and of a rank's start for a query.
"""

import argparse
import math
from dataclasses import dataclass

# Two H100s, NVLink, region registered, two groups: MB of a round, GB/s that leave a rank.
MEASURED = {1: 14.0, 4: 58.6, 16: 216.2, 64: 327.9, 256: 355.8, 1024: 364.0}
MEGABYTE = 1 << 20
EXCHANGES_MAX, BLOCKS_A_ROUND_MAX, ABORTS_MAX, ABORT_BYTES = 64, 1024, 8, 12 + 512


@dataclass(frozen=True)
class Cluster:
    """Ranks and what connects them; rates in bytes a second, times in seconds."""

    ranks: int
    per_host: int
    nvlink: float
    nic: float
    # Of a group, however little it moves, beside the one before it; and between the bytes of two groups. Fitted to MEASURED.
    group_s: float = 70e-6
    gap_s: float = 15e-6
    # Of each message of a group beside the others, to a rank of the same host and of another one; assumed, as in `ExchangeCosts`.
    message_s: float = 2e-6
    host_message_s: float = 10e-6
    # Of a control block, to write and to read it, on one host and to others; and until the last one has come; assumed.
    told_in_host_s: float = 8e-6
    told_out_of_host_s: float = 15e-6
    control_latency_s: float = 30e-6
    # What all outboxes of an exchange on a rank hold.
    outbox_bytes: float = 256 * MEGABYTE
    # Rank 0 starts a query on another rank, or hears how it ended; assumed.
    start_s: float = 60e-6

    @property
    def hosts(self):
        """Hosts, of which the last may have fewer ranks."""
        return math.ceil(self.ranks / self.per_host)

    @property
    def in_host(self):
        """Ranks of a host."""
        return min(self.ranks, self.per_host)


def control_bytes(ranks):
    """Of a control block: `ControlShape::bytes`."""
    return 40 + EXCHANGES_MAX * (32 + ranks) + BLOCKS_A_ROUND_MAX * 8 + ABORTS_MAX * ABORT_BYTES


# Ways to exchange rows.
DIRECT, TWO_LEVELS, BY_HOSTS = range(3)
WAYS = (DIRECT, TWO_LEVELS, BY_HOSTS)


def gather_s(cluster, way):
    """Every rank hears every other one's control block."""
    ranks, block = cluster.ranks, control_bytes(cluster.ranks)
    others_in_host, others_out = cluster.in_host - 1, ranks - cluster.in_host
    if way != BY_HOSTS or cluster.hosts == 1:
        wire = others_out * block * cluster.in_host / (cluster.nic * cluster.in_host)
        return cluster.control_latency_s + others_in_host * cluster.told_in_host_s + others_out * cluster.told_out_of_host_s + wire
    # To the first rank of the host, between these, and back.
    bundle = block * cluster.in_host
    up = others_in_host * cluster.told_in_host_s
    across = (cluster.hosts - 1) * (cluster.told_out_of_host_s + bundle / cluster.nic)
    down = others_in_host * cluster.told_in_host_s * cluster.hosts
    return 3 * cluster.control_latency_s + up + across + down


def transfer_s(cluster, bytes_, way):
    """A group in which a rank sends so many bytes, evenly to all."""
    ranks, in_host, hosts = cluster.ranks, cluster.in_host, cluster.hosts

    def group(near, far, wire_s):
        return max(cluster.group_s + messages_s(cluster, near, far), cluster.gap_s + wire_s)

    out_share = (ranks - in_host) / ranks
    if way == DIRECT or hosts == 1:
        by_nvlink = bytes_ * (in_host - 1) / ranks / cluster.nvlink
        by_nic = bytes_ * out_share / cluster.nic
        return group(in_host - 1, ranks - in_host, max(by_nvlink, by_nic))
    # One level's groups go on beside the other's.
    within = group(in_host - 1, 0, bytes_ * (in_host - 1) / in_host / cluster.nvlink)
    return max(within, group(0, hosts - 1, bytes_ * (hosts - 1) / hosts / cluster.nic))


def messages_s(cluster, near, far):
    """Of messages to so many ranks of the same host and of others."""
    return near * cluster.message_s + far * cluster.host_message_s


def steps(cluster, way):
    """Exchanges that follow one another for one."""
    return 1 if way == DIRECT or cluster.hosts == 1 or cluster.in_host == 1 else 2


def shuffle(cluster, bytes_a_rank, way=DIRECT):
    """Seconds of an exchange of which every rank sends so many bytes, and the share of them that is gathers."""
    rounds = max(1, math.ceil(bytes_a_rank / cluster.outbox_bytes))
    gather = gather_s(cluster, way)
    transfer = transfer_s(cluster, bytes_a_rank / rounds, way)
    # The second of two has something to send a round later.
    rounds += steps(cluster, way) - 1
    # The first gather and the last round, in which all say that they have ended, are beside nothing.
    seconds = 2 * gather + rounds * max(gather, transfer)
    return seconds, min(1.0, (2 + rounds) * gather / seconds)


def small_broadcast(cluster, bytes_, way=DIRECT):
    """Seconds in which every rank gets all of a small build side, of which each has a part: a round for each step, one more, and the bytes."""
    in_host, hosts, count = cluster.in_host, cluster.hosts, steps(cluster, way)
    if count == 1:
        messages = messages_s(cluster, in_host - 1, cluster.ranks - in_host)
        arriving = bytes_ * (cluster.ranks - in_host) / cluster.ranks / cluster.nic
    else:
        messages = messages_s(cluster, 0, hosts - 1) + messages_s(cluster, in_host - 1, 0)
        arriving = bytes_ / in_host * (hosts - 1) / hosts / cluster.nic + bytes_ * (in_host - 1) / in_host / cluster.nvlink
    return (1 + count) * gather_s(cluster, way) + count * cluster.group_s + messages + arriving


def coordinator_s(cluster):
    """Rank 0 starts a query on all others and hears of all how it ended, one after another."""
    return 2 * (cluster.ranks - 1) * cluster.start_s


def table(head, rows):
    """Lines of a Markdown table."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)] + ["| " + " | ".join(row) + " |" for row in rows]


def report(options):
    """The text of the report."""
    def cluster(ranks):
        return Cluster(ranks, options.per_host, options.nvlink * 1e9, options.nic * 1e9)
    sizes = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    lines = [f"# Ranks by reckoning: {options.per_host} a host, NVLink {options.nvlink} GB/s, a network card of {options.nic} GB/s a rank", "",
             "By `benches/simulate_ranks.py`, whose head says how. Two ranks, MB of a round, GB/s that leave a rank:", ""]
    rows, errors = [], []
    for megabytes, measured in MEASURED.items():
        bytes_ = megabytes * MEGABYTE
        pair = Cluster(2, 8, options.nvlink * 1e9, options.nic * 1e9)
        # With two ranks half of the shuffled rows leave a rank; the measured bytes are those that left.
        reckoned = bytes_ / transfer_s(pair, 2 * bytes_, DIRECT) / 1e9
        errors.append(abs(reckoned / measured - 1))
        rows.append([str(megabytes), f"{measured:.1f}", f"{reckoned:.1f}", f"{100 * (reckoned / measured - 1):+.0f} %"])
    lines += table(["MB", "measured", "reckoned", "difference"], rows)
    lines += ["", f"Mean difference {100 * sum(errors) / len(errors):.0f} %.", "", "## A shuffle of 16 GB a rank", "",
              "GB/s that a rank deals, its own rows among them, and the part of the time that gathers take.", ""]
    rows = []
    for ranks in sizes:
        of = cluster(ranks)
        found = [shuffle(of, 16e9, way) for way in WAYS]
        cells = [cell for seconds, share in found for cell in (f"{16 / seconds:.1f}", f"{100 * share:.0f} %")]
        rows.append([str(ranks)] + cells)
    lines += table(["ranks", "direct", "gathers", "two levels", "gathers", "by hosts", "gathers"], rows)
    lines += ["", "## What a query takes at least: milliseconds", "",
              "A round's gather; a build side of 1 MB, and of 1 GB, on every rank; a shuffle of 16 MB a rank; rank 0's part in beginning and ending a query.", ""]
    rows = []
    for ranks in sizes:
        of = cluster(ranks)
        cells = [gather_s(of, DIRECT), gather_s(of, BY_HOSTS), *(small_broadcast(of, 1e6, way) for way in WAYS),
                 *(small_broadcast(of, 1e9, way) for way in WAYS[:2]), *(shuffle(of, 16e6, way)[0] for way in WAYS), coordinator_s(of)]
        rows.append([str(ranks)] + [f"{1000 * cell:.2f}" for cell in cells])
    lines += table(["ranks", "gather, direct", "by hosts", "1 MB to all, direct", "two levels", "by hosts", "1 GB to all, direct", "two levels",
                    "16 MB, direct", "two levels", "by hosts", "coordinator"], rows)
    return "\n".join(lines) + "\n"


def main():
    """Prints the report, or writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-host", type=int, default=8)
    parser.add_argument("--nvlink", type=float, default=364.0, help="GB/s that leave a rank")
    parser.add_argument("--nic", type=float, default=50.0, help="GB/s of a rank's network card")
    parser.add_argument("--output", help="a file to write instead of printing")
    options = parser.parse_args()
    text = report(options)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
