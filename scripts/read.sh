#!/usr/bin/env bash
# Reads a picture or a document with nothing installed before: scripts/read.sh IMAGE [options].
# Without arguments it reads the sample page and draws its boxes into out/.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

extras=ppocr
for argument in "$@"; do
  case $argument in
    # Another model than the embedded one may need PyTorch.
    --model | --model=*) extras=cpu ;;
  esac
done
setup "$extras"

if [ $# -eq 0 ]; then
  set -- "$root/scripts/sample_page.png" --draw "$root/out"
  say "Reading the sample page; the picture with boxes goes to $root/out/sample_page.png"
fi
exec "$venv/bin/hyocr" read "$@"
