#!/usr/bin/env bash
# Fetches the free fonts of the reader's world into a cache folder; the system is not changed.
#
#   scripts/train_reader/install_fonts.sh [FOLDER]     (default: ~/.cache/hyocr/reader_fonts)
#
# Needs a Debian or Ubuntu with apt-get and dpkg. Licences: Liberation and Lato: SIL OFL 1.1;
# DejaVu: Bitstream Vera / public domain; WenQuanYi Micro Hei: Apache 2.0 or GPL 3 with font
# exception; WenQuanYi Zen Hei: GPL 2 with font exception. Fonts are used to draw, never shipped.
set -euo pipefail

target=${1:-"${XDG_CACHE_HOME:-$HOME/.cache}/hyocr/reader_fonts"}
packages=(fonts-liberation2 fonts-dejavu-core fonts-wqy-microhei fonts-wqy-zenhei fonts-lato)
files=(LiberationSans-Regular.ttf DejaVuSans.ttf wqy-microhei.ttc wqy-zenhei.ttc Lato-Regular.ttf)

mkdir -p "$target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for package in "${packages[@]}"; do
    apt-get download --quiet "$package"
done
for archive in ./*.deb; do
    dpkg --extract "$archive" unpacked
done
for file in "${files[@]}"; do
    found=$(find unpacked -name "$file" -print -quit)
    if [ -z "$found" ]; then
        echo "install_fonts: $file is in none of: ${packages[*]}" >&2
        exit 1
    fi
    install -m 644 "$found" "$target/$file"
done
echo "$target"
