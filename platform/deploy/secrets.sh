#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, in the folder that SECRETS names (./secrets): those that are there
# stay as they are. Delete one and run this again to rotate it.
#
#   sh platform/deploy/secrets.sh
set -eu
folder="${SECRETS:-./secrets}"
# A container's user is another than the host's and gets the file itself mounted, so that files have to be readable to all;
# nobody else on the host comes past the folder.
mkdir -p "$folder"
chmod 700 "$folder"
for name in key_salt qdrant_api_key grafana_admin_password; do
    [ -s "$folder/$name" ] || od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$folder/$name"
done
# Of huggingface.co; empty for checkpoints that are open to all.
[ -e "$folder/hf_token" ] || : >"$folder/hf_token"
chmod 644 "$folder/key_salt" "$folder/qdrant_api_key" "$folder/grafana_admin_password" "$folder/hf_token"
echo "secrets are in $folder"
