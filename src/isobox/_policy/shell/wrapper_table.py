"""Programs that only run another program, and their options: a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from isobox._policy.shell.names import listed
from isobox._policy.shell.options import Options


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How a program names the one that it runs.

    Attributes:
        options: Its own options.
        operands: Words before the program, such as the duration of `timeout`.
        assigns: Whether `NAME=value` before the program sets a variable.
        scripts: Options whose value a shell reads.
        writes: Options whose value is a file that it writes.
        shells: Options that start a shell when no program is named.
        looks_up: Options that only print what a name stands for.
        edits: Options that start an editor on files.
    """

    options: Options
    operands: int = 0
    assigns: bool = False
    scripts: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    shells: frozenset[str] = frozenset()
    looks_up: frozenset[str] = frozenset()
    edits: frozenset[str] = frozenset()


_NONE: Final = Wrapper(Options.of())
_AS_USER: Final = Wrapper(Options.of("u --user"), operands=1)
_SETARCH: Final = Wrapper(
    Options.of(
        "",
        "RBFILSTXZ3v --addr-no-randomize --fdpic-funcptrs --mmap-page-zero --32bit"
        " --addr-compat-layout --read-implies-exec --short-inode --uname-2.6"
        " --whole-seconds --sticky-timeouts --verbose --3gb --4gb",
    ),
)
_PACKAGE: Final = Wrapper(
    Options.of(
        "pc --package --from --with --python --call",
        "qy --yes --no --quiet --no-install --ignore-existing --offline",
    ),
    scripts=frozenset({"c", "--call"}),
)
#: Names of machines, by which `setarch` is called too.
MACHINES: Final = ("i386", "linux32", "linux64", "uname26", "x86_64")
_NICE: Final = Wrapper(Options.of("n --adjustment", "0123456789 --help --version"))

#: What has no options that matter, and takes the program as its first word.
_PLAIN: Final = listed(
    "builtin busybox catchsegv chronic eatmydata fakechroot fakeroot ifne ld.so"
    " proot rlwrap run-one setlock softlimit systemd-cat"
    " systemd-inhibit tini toybox torify torsocks trickle tsocks valgrind dumb-init"
    " catatonit dbus-run-session dbus-launch firejail heaptrack qemu wine wine64"
    " mono box64 box86 caffeinate arch xcrun ccache sccache distcc icecc nodemon"
    " watchexec onchange chpst keep-one-running numactl cpulimit ssh-agent sshpass"
    " setpriv prlimit choom pkexec lckdo with-lock-ex retry dotenvx"
    " cross-env envchain aa-exec kstart krenew k5start aoss padsp primusrun optirun"
    " flatpak-spawn host-spawn distrobox-host-exec"
    " prime-run gamemoderun mangohud vglrun schedtool bwrap"
)

WRAPPERS: Final[dict[str, Wrapper]] = {
    **dict.fromkeys(_PLAIN, Wrapper(Options.of())),
    **dict.fromkeys(("npx", "bunx", "pnpx", "uvx"), _PACKAGE),
    **dict.fromkeys(("gosu", "su-exec", "setuidgid", "s6-setuidgid"), _AS_USER),
    **dict.fromkeys(
        ("envdir", "faketime", "gdbserver", "runcon", "envuidgid"), _AS_USER
    ),
    "chroot": Wrapper(Options.of("--userspec --groups", "--skip-chdir"), operands=1),
    "chrt": Wrapper(Options.of("pTPD", "abdfimorv"), operands=1),
    "command": Wrapper(Options.of("", "pvV"), looks_up=frozenset("vV")),
    "coproc": _NONE,
    "doas": Wrapper(Options.of("uC", "Lns"), assigns=True, shells=frozenset("s")),
    "env": Wrapper(
        Options.of(
            "uCS --unset --chdir --split-string",
            "i0v --ignore-environment --null --debug",
        ),
        assigns=True,
        scripts=frozenset({"S", "--split-string"}),
    ),
    "exec": Wrapper(Options.of("a", "cl")),
    "flock": Wrapper(
        Options.of(
            "wEc --timeout --command --conflict-exit-code",
            "snxuoFv --shared --nonblock --exclusive --unlock --close --no-fork",
        ),
        operands=1,
        scripts=frozenset({"c", "--command"}),
    ),
    "choom": Wrapper(Options.of("np --adjust --pid")),
    "dbus-launch": Wrapper(Options.of("", "--exit-with-session --sh-syntax")),
    "firejail": Wrapper(Options.of("", "--quiet --noprofile")),
    "ld.so": Wrapper(
        Options.of(
            "--library-path --preload --argv0 --audit --glibc-hwcaps-prepend"
            " --glibc-hwcaps-mask",
            "--inhibit-cache --list --verify",
        )
    ),
    "pkexec": Wrapper(
        Options.of("u --user", "--disable-internal-agent --keep-cwd"),
        shells=frozenset({"u", "--user"}),
    ),
    "prlimit": Wrapper(
        Options.of("po --pid --output", "cdefilmnqrstuvxy --raw --noheadings")
    ),
    "setpriv": Wrapper(
        Options.of(
            "--reuid --regid --ruid --euid --rgid --egid --groups --inh-caps"
            " --ambient-caps --bounding-set --securebits --pdeathsig",
            "d --clear-groups --keep-groups --init-groups --no-new-privs --dump"
            " --reset-env --nnp",
        )
    ),
    "ssh-agent": Wrapper(Options.of("aEtPO", "cskdD")),
    "sshpass": Wrapper(Options.of("fdpP", "evhV")),
    "tini": Wrapper(Options.of("pe", "svwgl")),
    "ionice": Wrapper(Options.of("cn --class --classdata", "t --ignore")),
    "ltrace": Wrapper(Options.of("oeaAnpsuDlxFw", "bcCfiLrStT"), writes=frozenset("o")),
    "nice": _NICE,
    "nohup": _NONE,
    "nsenter": Wrapper(
        Options.of(
            "tSGW --target --setuid --setgid --wdns",
            "amuinpUCTFZrwe --all --mount --uts --ipc --net --pid --user --cgroup"
            " --time --no-fork --preserve-credentials",
        ),
        shells=frozenset({"t", "--target", "a", "--all"}),
    ),
    "proxychains": Wrapper(Options.of("f", "q")),
    "proxychains4": Wrapper(Options.of("f", "q")),
    **dict.fromkeys(("setarch", *MACHINES), _SETARCH),
    "setsid": Wrapper(Options.of("", "cfw --ctty --fork --wait")),
    "stdbuf": Wrapper(Options.of("ioe --input --output --error")),
    "strace": Wrapper(
        Options.of(
            "oeapsuEPSbIOX --output --trace --attach --string-limit",
            "cCdfhiqrtTvVxyYzZFDknw --follow-forks --summary-only",
        ),
        writes=frozenset({"o", "--output"}),
    ),
    "sudo": Wrapper(
        Options.of(
            "ugCpThUrtDR --user --group --prompt --host --chdir --chroot --role"
            " --type --close-from --command-timeout --other-user",
            "AbEHnPSkKBNVvlisel --preserve-env --non-interactive --login --shell"
            " --stdin --background --set-home --askpass --list --validate --edit"
            " --reset-timestamp --remove-timestamp --version --help",
        ),
        assigns=True,
        shells=frozenset({"i", "s", "--login", "--shell"}),
        edits=frozenset({"e", "--edit"}),
    ),
    "taskset": Wrapper(Options.of("", "ac --all-tasks --cpu-list"), operands=1),
    "time": Wrapper(
        Options.of("of --output --format", "apvqV --append --portability --verbose"),
        writes=frozenset({"o", "--output"}),
    ),
    "timeout": Wrapper(
        Options.of(
            "ks --kill-after --signal", "vf --foreground --preserve-status --verbose"
        ),
        operands=1,
    ),
    "unbuffer": Wrapper(Options.of("", "p")),
    "unshare": Wrapper(
        Options.of(
            "SGRw --setuid --setgid --root --wd --propagation --map-user --map-group",
            "muinpUCTfrc --mount --uts --ipc --net --pid --user --cgroup --time"
            " --fork --map-root-user --map-current-user --mount-proc --kill-child",
        ),
        shells=frozenset("muinpUCTfr"),
    ),
    "watch": Wrapper(
        Options.of(
            "nq --interval --equexit",
            "bcdegptwxr --beep --color --differences --errexit --chgexit --no-title"
            " --precise --exec --no-wrap",
        ),
    ),
    "xargs": Wrapper(
        Options.of(
            "IndPaELs --max-args --delimiter --max-procs --arg-file --max-chars"
            " --process-slot-var",
            "0rtpxoil --null --no-run-if-empty --verbose --interactive --exit"
            " --open-tty --replace --max-lines --eof",
        ),
    ),
    "xvfb-run": Wrapper(Options.of("nswefp", "al --auto-servernum")),
}
