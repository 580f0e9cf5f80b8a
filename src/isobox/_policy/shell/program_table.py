"""Programs that can be told to run others, and the options that tell them."""

from __future__ import annotations

import re
from typing import Final

from isobox._policy.shell.names import listed

#: Options whose value is a command.
RUNS: Final[dict[str, frozenset[str]]] = {
    "bsdtar": frozenset({"--use-compress-program"}),
    "capsh": frozenset({"-c"}),
    "cpio": frozenset({"--rsh-command"}),
    "cvs": frozenset({"-e"}),
    "fzf": frozenset({"--preview", "--bind"}),
    "install": frozenset({"--strip-program"}),
    "man": frozenset({"-P", "--pager", "-H", "--html", "-C", "--config-file"}),
    "nc": frozenset({"-e", "-c"}),
    "ncat": frozenset({"-e", "-c", "--exec", "--sh-exec", "--lua-exec"}),
    "netcat": frozenset({"-e", "-c"}),
    "nix-shell": frozenset({"--run", "--command"}),
    "rg": frozenset({"--pre", "--hostname-bin"}),
    "pandoc": frozenset({"-F", "--filter", "-L", "--lua-filter", "--pdf-engine"}),
    "rsync": frozenset({"-e", "--rsh", "--rsync-path", "-M", "--remote-option"}),
    "runuser": frozenset({"-c", "--command", "--session-command"}),
    "scp": frozenset({"-S", "-o", "-F", "-D"}),
    "script": frozenset({"-c", "--command"}),
    "sftp": frozenset({"-S", "-o", "-F", "-D", "-b"}),
    "sort": frozenset({"--compress-program"}),
    "split": frozenset({"--filter"}),
    "sshfs": frozenset({"-o"}),
    "su": frozenset({"-c", "--command", "--session-command", "--shell"}),
    "svn": frozenset({"--editor-cmd", "--diff-cmd", "--config-option"}),
    "tcpdump": frozenset({"-z"}),
    "tshark": frozenset({"-X"}),
    "wget": frozenset({"--use-askpass", "-e", "--execute", "--config"}),
    "wireshark": frozenset({"-X"}),
    "zip": frozenset({"--unzip-command", "-TT"}),
}
#: Programs that run what their arguments, their files or a person tell them.
OPAQUE: Final = listed(
    "anacron clickhouse-local dhclient dropbear logrotate mlr mongo mongosh pppd puppet"
    " salt-call sshd tcpserver udevadm vd wpa_cli"
    " abduco ansible ansible-console ansible-playbook at autoexpect batch bpftrace"
    " bpython busctl cgdb cgexec chdist circusd clush concurrently crontab daemonize dc"
    " ddd dmenu_run dpkg-buildpackage dsh dtach duckdb dvtm ecl ed emacs emacsclient"
    " entr envoy ex execlineb exo-open fab fabric fdisk foreman ftp gdb gio-launch"
    " gnome-terminal gview gvim hexedit honcho hyperfine inotifyd invoke ipython"
    " ipython3 irb joe konsole kitty alacritty lftp lldb lxc lxc-attach lxc-execute"
    " lxc-start m4 machinectl mail mailx mc mispipe mosh mutt mysql mariadb neomutt"
    " newgrp nnn nvim openvt overmind parallel parallel-ssh pdb pdsh pee picocom pico"
    " psql pssh ptpython ranger reflex rofi run-parts runsv runsvdir rust-gdb rust-lldb"
    " rview rvim s-nail salt screen sqlite sqlite3 stap start-stop-daemon sudoedit"
    " supervisord systemd-nspawn systemd-run telnet tmux tsp ttyd urxvt vi view vigr"
    " vidir vim vimdiff vipe vipw visudo watchman wezterm x-terminal-emulator xdg-open"
    " xdotool xterm zellij socat stunnel inetd xinetd"
)
_COMPILER: Final = re.compile(
    r"-wrapper|-B.*|-fplugin.*|@.*|-specs.*|--specs.*|-Xclang|-load|-fuse-ld=/.*"
    r"|-fpass-plugin.*|--config.*|-cc1.*|-plugin.*|-Wl,.*-plugin.*"
)
#: Arguments that tell a program to run another one.
OPAQUE_OPTIONS: Final[dict[str, re.Pattern[str]]] = {
    **dict.fromkeys(
        ("c++", "c89", "c99", "cc", "clang", "clang++", "g++", "gcc", "gfortran", "ld"),
        _COMPILER,
    ),
    "apt": re.compile(r"-o.*|--option.*|-c.*|--config.*"),
    "apt-get": re.compile(r"-o.*|--option.*|-c.*|--config.*"),
    "cargo": re.compile(r"--config.*"),
    "curl": re.compile(r"-K.*|--config.*"),
    "docker": re.compile(r"-H.*|--host.*|--config.*"),
    "dpkg": re.compile(r"--(?:pre|post)-invoke.*|--status-logger.*|--instdir.*"),
    "go": re.compile(r"--?(?:exec|toolexec|vettool)(?:=.*)?|-w"),
    "gpg": re.compile(r"--(?:photo-viewer|exec-path|options|homedir|agent-prog).*"),
    "hg": re.compile(r"--config.*"),
    "ip": re.compile(r"netns|vrf|-b.*"),
    "less": re.compile(r"[+].*|-[kp].*|--lesskey.*"),
    "more": re.compile(r"[+].*"),
    "mount": re.compile(r"-t.*|--types.*|-i.*"),
    "mvn": re.compile(r"exec:.*|.*:exec-maven-plugin:.*"),
    "nmap": re.compile(r"--script.*|--interactive"),
    "npm": re.compile(r"--script-shell.*|--node-options.*|exec|x"),
    "openssl": re.compile(r"-engine|-provider.*|-config"),
    "patch": re.compile(r"-e|--ed"),
    "pip": re.compile(
        r"--python.*|--global-option.*|--build-option.*|-C.*|--config-.*"
    ),
    "rpm": re.compile(r"--pipe.*|-E.*|--eval.*|--define.*"),
    "rustc": re.compile(r"-C.*linker.*|-Clinker.*|--codegen.*|linker=.*"),
    "ssh-add": re.compile(r"-[sS].*"),
    "ssh-keygen": re.compile(r"-[Dw].*"),
    "systemctl": re.compile(r"edit"),
    **dict.fromkeys(
        ("latex", "latexmk", "lualatex", "pdflatex", "pdftex", "tex", "xelatex"),
        re.compile(r"--?shell-escape|--?enable-write18|-e|\\.*"),
    ),
}
