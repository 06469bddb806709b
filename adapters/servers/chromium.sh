#!/usr/bin/env bash
# Installs Debian's chromium for the browser test of the public page, when there is no Chromium or Chrome.
# shellcheck source-path=SCRIPTDIR
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for browser in chromium chromium-browser google-chrome; do
  if have "$browser"; then
    say "browser: $(command -v "$browser")"
    exit 0
  fi
done
apt_install chromium fonts-dejavu-core # without a font the pictures show no text
say "browser: $(command -v chromium)"
