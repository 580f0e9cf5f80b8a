"""Types of files by name, as ripgrep calls them."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from isobox.errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TABLE: Final = """
ada *.adb *.ads
asm *.asm *.s *.S
awk *.awk
bazel *.bazel *.bzl BUILD WORKSPACE MODULE.bazel
c *.c *.h *.H *.cats
clojure *.clj *.cljc *.cljs *.cljx
cmake *.cmake CMakeLists.txt
config *.cfg *.conf *.config *.ini
cpp *.C *.H *.cc *.cpp *.cxx *.h *.hh *.hpp *.hxx *.inl
cs *.cs
css *.css *.scss
csv *.csv
cuda *.cu *.cuh
d *.d
dart *.dart
diff *.diff *.patch
docker *Dockerfile*
elixir *.eex *.ex *.exs *.heex *.leex *.livemd
elm *.elm
erlang *.erl *.hrl
fish *.fish
fortran *.f *.F *.f77 *.f90 *.F90 *.f95 *.F95 *.for *.pfo
fsharp *.fs *.fsi *.fsx
gleam *.gleam
go *.go
graphql *.gql *.graphql *.graphqls
groovy *.gradle *.groovy
h *.h *.hh *.hpp
haskell *.c2hs *.cpphs *.hs *.hsc *.lhs
html *.ejs *.htm *.html
java *.java *.jsp *.jspx *.properties
jinja *.j2 *.jinja *.jinja2
jl *.jl
js *.cjs *.js *.jsx *.mjs *.vue
json *.json *.sarif composer.lock
jsonl *.jsonl
julia *.jl
jupyter *.ipynb *.jpynb
kotlin *.kt *.kts
less *.less
lisp *.el *.jl *.lisp *.lsp *.sc *.scm
log *.log
lua *.lua
make *.mak *.mk [Gg][Nn][Uu]makefile [Mm]akefile [Mm]akefile.am [Mm]akefile.in
man *.[0-9][cEFMmpSx] *.[0-9lnpx]
markdown *.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn
md *.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn
nim *.nim *.nimble *.nimf *.nims
nix *.nix
objc *.h *.m
objcpp *.h *.mm
ocaml *.ml *.mli *.mll *.mly
org *.org *.org_archive
pdf *.pdf
perl *.PL *.perl *.pl *.plh *.plx *.pm *.t
php *.php *.php3 *.php4 *.php5 *.php7 *.php8 *.pht *.phtml
protobuf *.proto
ps *.cdxml *.ps1 *.ps1xml *.psd1 *.psm1
py *.py *.pyi
python *.py *.pyi
r *.R *.Rmd *.Rnw *.r
rst *.rst
ruby *.gemspec *.rb *.rbw .irbrc Gemfile Rakefile config.ru
rust *.rs
sass *.sass *.scss
scala *.sbt *.scala
sh *.bash *.bashrc *.csh *.cshrc *.ksh *.kshrc *.sh *.tcsh *.zsh .bashrc .profile .zshrc
sql *.psql *.sql
svelte *.svelte *.svelte.ts
svg *.svg
swift *.swift
tcl *.tcl
tex *.bib *.cls *.dtx *.ins *.ltx *.sty *.tex
tf *.terraform.lock.hcl *.tf *.tf.json *.tfvars *.tfvars.json *.terraformrc
toml *.toml Cargo.lock
ts *.cts *.mts *.ts *.tsx
typescript *.cts *.mts *.ts *.tsx
txt *.txt
typst *.typ
vala *.vala
vb *.vb
verilog *.sv *.svh *.v *.vg *.vh
vhdl *.vhd *.vhdl
vim *.vim .gvimrc .vimrc _gvimrc _vimrc gvimrc vimrc
vue *.vue
wasm *.wasm *.wat
webidl *.idl *.webidl *.widl
xml *.dtd *.rng *.sch *.xhtml *.xjb *.xml *.xml.dist *.xsd *.xsl *.xslt
yaml *.yaml *.yml
zig *.zig
zsh *.zsh .zlogin .zlogout .zprofile .zshenv .zshrc zlogin zlogout zprofile zshenv zshrc
"""

#: Names of types, and the patterns of the names that files of them have.
FILE_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    name: tuple(globs)
    for name, *globs in (line.split() for line in _TABLE.strip().splitlines())
}


def globs_of(types: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of names that files of these types have.

    Raises:
        InvalidArgumentError: There is no such type.
    """
    return tuple(glob for name in types for glob in _globs(name))


def _globs(name: str) -> tuple[str, ...]:
    try:
        return FILE_TYPES[name]
    except KeyError:
        near = difflib.get_close_matches(name, FILE_TYPES, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "use glob instead"
        raise InvalidArgumentError(f"there is no file type {name!r}; {hint}") from None
