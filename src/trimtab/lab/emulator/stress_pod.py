"""The stress pod: a container that generates the CPU and memory load that it last received, and its manifests.

It is a shell script, so that it runs from any image with busybox in it and none has to be built. CPU is burnt by
loops that are stopped and let go on, twenty milliseconds at a time, until their CPU time is what was asked for; what a
limit or a neighbour kept from them for longer than `_CATCH_UP` is forgotten, as a web server's clients would. Memory is
held by awk in strings of a MiB, every page of them written to. When memory kills the holder, all of the container ends,
also where the kernel kills single processes alone (cgroup v1). What is wanted comes in by HTTP, and outlives a restart.
"""

from __future__ import annotations

from typing import Any

from trimtab.actuation.resources import to_manifest
from trimtab.kube.kinds.pods import Resources

IMAGE = "busybox:1"
PORT = 8080
CONTAINER = "burner"
USAGE_PATH = "cgi-bin/usage"
"""The path at which a pod receives its load: `?milli=250&mib=64`."""
LABEL = "trimtab.io/stress"

_CATCH_UP = 200
"""Hundredths of a second: work of so much time is caught up with at most."""

SCRIPT = r"""
cd /stress && mkdir -p www/cgi-bin && rm -f memory idle && mkfifo memory idle || exit 1
[ -f wanted ] || echo 0 0 > wanted
cat > www/cgi-bin/usage <<'END'
#!/bin/sh
query=$QUERY_STRING
milli=${query#*milli=}; milli=${milli%%&*}; mib=${query#*mib=}; mib=${mib%%&*}
case "$milli$mib" in ''|*[!0-9]*) printf 'Status: 400 Bad Request\r\n\r\nmilli=250&mib=64\n'; exit ;; esac
echo "$milli $mib" > /stress/new.$$ && mv /stress/new.$$ /stress/wanted
printf 'Content-Type: text/plain\r\n\r\n%s %s\n' "$milli" "$mib"
END
chmod +x www/cgi-bin/usage; echo ready > www/index.html
exec 5<>idle 6<>memory
awk '{ while (held < $1) page[held++] = sprintf("%1048576s", "")
  while (held > $1) { page[--held] = ""; delete page[held] } }' <&6 5<&- &
holder=$!
httpd -f -p PORT -h www 5<&- 6<&- &
others="$holder $!"
trap 'kill -9 $others $loops; exit 143' TERM INT
loops=; count=0; held=0; owed=0; going=1
read up _ < /proc/uptime; last=${up%.*}${up#*.}
while kill -0 $holder 2>/dev/null; do
  read milli mib < wanted
  if [ "$mib" != "$held" ]; then held=$mib; echo "$mib" >&6; fi
  enough=$(((milli + 899) / 900))
  while [ $count -lt $enough ]; do
    (while :; do :; done) 5<&- 6<&- & loops="$loops $!"; count=$((count + 1)); going=1; owed=; done
  used=0
  for pid in $$ $loops; do
    read _ _ _ _ _ _ _ _ _ _ _ _ _ user system _ < /proc/$pid/stat
    used=$((used + (user + system) * 1000))
  done
  read up _ < /proc/uptime; now=${up%.*}${up#*.}
  owed=$((${owed:-used} + milli * (now - last))); last=$now
  [ $owed -gt $((used + milli * CATCH_UP)) ] && owed=$((used + milli * CATCH_UP))
  [ $owed -lt $((used - 50000)) ] && owed=$((used - 50000))
  if [ $owed -gt $used ]; then [ $going = 1 ] || kill -CONT $loops; going=1
  elif [ $going = 1 ]; then [ -z "$loops" ] || kill -STOP $loops; going=0; fi
  if [ $milli = 0 ]; then read -t 0.2 _ <&5; else read -t 0.02 _ <&5; fi
done
kill -9 $others $loops 2>/dev/null; exit 137
""".replace("PORT", str(PORT)).replace("CATCH_UP", str(_CATCH_UP))


def escape_dollars(script: str) -> str:
    """Escape a script for a container's command, where Kubernetes turns `$$` into `$` and expands `$(NAME)`."""
    return script.replace("$", "$$")


def build_deployment(
    name: str, *, size: Resources, image: str = IMAGE, run: str = "stress"
) -> dict[str, Any]:
    """Build a Deployment of one stress pod."""
    labels = {"app": name, LABEL: run}
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", escape_dollars(SCRIPT)],
        "ports": [{"containerPort": PORT}],
        "resources": to_manifest(size),
        "volumeMounts": [{"name": "stress", "mountPath": "/stress"}],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    "volumes": [{"name": "stress", "emptyDir": {}}],
                },
            },
        },
    }


def build_service(name: str, *, run: str = "stress") -> dict[str, Any]:
    """Return the Service through which the stress pod receives its load."""
    labels = {"app": name, LABEL: run}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": {"selector": labels, "ports": [{"port": PORT, "targetPort": PORT}]},
    }
