"""What clones a repository into a folder of a volume, which several pods and several jobs may share.

One pod at a time does it: a folder beside is the lock, for `mkdir` is atomic on network file systems too.
What somebody changed in the folder is never thrown away.
"""

from __future__ import annotations

from k8s.job_spec import JobSpec

CLONE = r"""
set -eu
dir=$1 lock=$1.lock above=$(dirname "$1") rev=${GIT_SYNC_REV:-} branch=${GIT_SYNC_BRANCH:-} alive=
say() { echo "$dir: $1" >&2; }
export HOME="$(mktemp -d)" GIT_TERMINAL_PROMPT=0
trap 'kill $alive 2>/dev/null; rm -rf "$HOME"' EXIT
trap 'exit 1' TERM INT
git config --global --add safe.directory '*'
if [ -n "${GIT_SYNC_PASSWORD:-}" ]; then
    git config --global credential.helper \
        '!f() { echo "username=${GIT_SYNC_USERNAME:-}"; echo "password=$GIT_SYNC_PASSWORD"; }; f'
fi
if [ -n "${GIT_SYNC_SSH:-}" ]; then
    options="-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    export GIT_SSH_COMMAND="ssh -i /etc/git-secret/ssh $options"
fi
mkdir -p "$above"
[ -w "$above" ] || { say "cannot write to $above"; exit 1; }
until mkdir "$lock" 2>/dev/null; do
    # Whoever holds it touches it each minute: an old one was left by a pod that was killed.
    [ -z "$(find "$lock" -maxdepth 0 -mmin +5 2>/dev/null)" ] || rmdir "$lock" 2>/dev/null || :
    sleep 1
done
trap 'kill $alive 2>/dev/null; rmdir "$lock" 2>/dev/null; rm -rf "$HOME"' EXIT
while sleep 60 && kill -0 $$; do touch -c "$lock"; done >/dev/null 2>&1 &
alive=$!
if [ ! -e "$dir/.git" ]; then
    if [ -d "$dir" ] && [ -n "$(ls -A "$dir")" ]; then
        say "not cloned: it is not empty, and no repository"
        exit 1
    fi
    rm -rf "$dir.new"
    git clone --quiet --recurse-submodules ${branch:+--branch "$branch"} "$GIT_SYNC_REPO" "$dir.new"
    [ -z "$rev" ] || git -C "$dir.new" checkout --quiet --detach --recurse-submodules "$rev"
    [ ! -d "$dir" ] || rmdir "$dir"
    mv "$dir.new" "$dir"
    say "cloned, at $(git -C "$dir" rev-parse --short HEAD)"
    exit
fi
cd "$dir"
# Whoever cloned it by hand may have a token in its address.
held=$(git config --get remote.origin.url | sed 's#^\(https\{0,1\}://\)[^/]*@#\1#')
[ "$held" = "$GIT_SYNC_REPO" ] || { say "holds another repository: $held"; exit 1; }
git fetch --quiet --tags origin
if [ -n "$rev" ]; then
    new=$(git rev-parse --verify --quiet "$rev^{commit}") || { say "there is no commit $rev"; exit 1; }
else
    git fetch --quiet origin "${branch:-HEAD}"
    new=$(git rev-parse 'FETCH_HEAD^{commit}')
fi
old=$(git rev-parse HEAD)
keep() {
    say "not updated: $1; it stays at $(git rev-parse --short HEAD)"
    [ -z "$rev" ] || exit 1
    exit 0
}
[ "$old" != "$new" ] || { say "up to date, at $(git rev-parse --short HEAD)"; exit; }
[ -z "$(git status --porcelain --untracked-files=no)" ] || keep "there are local changes"
[ -z "$(git rev-list --max-count=1 HEAD --not --remotes --tags "$new")" ] || keep "there are local commits"
git checkout --quiet --detach --recurse-submodules "$new" || keep "git could not check out the new commit"
say "updated, at $(git rev-parse --short HEAD)"
"""
"""Runs as `sh -c CLONE sh FOLDER`, with git-sync's variables. A commit that is asked for and cannot be
had is an error; a branch that cannot be updated is said, and the job goes on with what is there."""


def clone_command(spec: JobSpec) -> list[str]:
    """Return the argv of the container that clones."""
    return ["sh", "-c", CLONE, "sh", spec.sync_path]


def cloned_folder(command: list[object]) -> str:
    """Return the folder that an argv clones into; empty where it is none of ours."""
    is_ours = len(command) == 5 and command[:4] == ["sh", "-c", CLONE, "sh"]
    return str(command[4]) if is_ours else ""
