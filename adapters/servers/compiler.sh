#!/usr/bin/env bash
# Installs Debian's C compiler, which Go's race detector links with, when there is none. Nothing else needs it.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if have "$(go env CC)"; then
  exit 0
fi
apt_install gcc libc6-dev
