#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, in the folder that SECRETS names, here or in .env (./secrets): those
# that are there stay as they are. Delete one and run this again to rotate it.
#
#   sh platform/deploy/secrets.sh
set -eu
cd "$(dirname "$0")/../.." # Compose, too, starts relative paths beside its file
if [ -z "${SECRETS:-}" ] && [ -e .env ]; then
    SECRETS=$(sed -n -e "s/^SECRETS=[\"']\([^\"']*\).*/\1/p;t" -e "s/^SECRETS=\([^ ]*\).*/\1/p" .env | tail -n 1)
fi
folder="${SECRETS:-./secrets}"
# A container's user is another than the host's and gets the file itself mounted, so that files have to be readable to all;
# nobody else on the host comes past the folder.
mkdir -p "$folder"
chmod 700 "$folder"
new="$folder/.new-$$"
trap 'rm -f "$new"' EXIT
for name in key_salt qdrant_api_key grafana_admin_password hf_token; do
    if [ -d "$folder/$name" ]; then
        echo "$folder/$name is a folder, which Docker makes in the place of a file that is missing: remove it" >&2
        exit 1
    fi
    if [ "$name" = hf_token ]; then
        # Of huggingface.co; empty for checkpoints that are open to all.
        [ -e "$folder/$name" ] || : >"$folder/$name"
    elif [ ! -s "$folder/$name" ]; then
        # Whole or not at all: what a full disk cut short would stay.
        od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$new"
        [ "$(wc -c <"$new")" -eq 64 ]
        mv "$new" "$folder/$name"
    fi
    chmod 644 "$folder/$name"
done
echo "secrets are in $folder"
