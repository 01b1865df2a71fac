"""The gateway of a deployment: its command, its script, and the same rules for nginx."""

from cadis.flower.deployment_scripts import SCRIPT_HEADER, DeploymentPlan, join_address
from cadis.flower.gateway_rules import HEADERS, PATHS


def make_gateway_command(plan: DeploymentPlan) -> str:
    """Return the command that starts the gateway."""
    return f"""python -m cadis.flower.gateway \\
    --listen {join_address(plan.bind_address, plan.port)} --upstream {plan.superlink_address} \\
    --certificate server.crt --key server.key --upstream-ca ca.crt"""


def make_gateway_script(plan: DeploymentPlan) -> str:
    """Return the content of ``gateway/start.sh``."""
    purpose = (
        "Start the gateway. Arguments are passed on to it. superlink/start.sh runs this script."
    )
    return SCRIPT_HEADER % purpose + f'exec {make_gateway_command(plan)} "$@"\n'


def make_nginx_config(plan: DeploymentPlan) -> str:
    """Return the content of ``gateway/nginx.conf``, which has the rules of the gateway.

    nginx compares texts in a map without regard to case, but regular expressions exactly.
    """
    lines = [f'"~^POST {path} HTTP/1\\.1$" {path};' for path in PATHS]
    headers = [f"proxy_set_header {name} $http_{name.replace('-', '_')};" for name in HEADERS]
    return _NGINX.format(
        paths="\n        ".join(lines),
        headers="\n            ".join(headers),
        listen=join_address(plan.bind_address, plan.port),
        superlink=plan.superlink_address,
    )


_NGINX = """\
# The rules of the gateway for nginx. Start nginx in this folder, instead of the gateway:
#     nginx -p "$PWD" -c nginx.conf
# Start the server with: CADIS_GATEWAY=separate superlink/start.sh
daemon off;
pid nginx.pid;
error_log stderr;
worker_processes auto;
events {{ worker_connections 2048; }}
http {{
    # The whole first line of a request, as it arrived: nothing is decoded or normalized.
    map $request $site_path {{
        default "";
        {paths}
    }}
    map $status $is_refused {{ default 0; 403 1; }}
    log_format refused 'refused $remote_addr port $remote_port: "$request"';
    access_log /dev/stderr refused if=$is_refused;
    upstream superlink {{ server {superlink}; keepalive 20; }}
    # Bodies are not stored in files; nginx creates these folders all the same.
    client_body_temp_path nginx-unused;
    proxy_temp_path nginx-unused;
    fastcgi_temp_path nginx-unused;
    uwsgi_temp_path nginx-unused;
    scgi_temp_path nginx-unused;
    server {{
        listen {listen} ssl;
        ssl_certificate server.crt;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        server_tokens off;
        merge_slashes off;
        client_header_timeout 20s;
        keepalive_timeout 20s;
        client_body_timeout 30s;
        send_timeout 30s;
        lingering_timeout 1s;
        lingering_time 5s;
        client_max_body_size 64m;
        large_client_header_buffers 4 8k;
        # An answer of nginx itself that is no success is 403, as in the gateway.
        error_page 400 404 405 408 411 413 414 494 495 496 497 501 505 =403 /refused;
        error_page 502 504 =503 /unavailable;
        location = /refused {{ internal; return 403; }}
        location = /unavailable {{ internal; return 503; }}
        location / {{
            if ($site_path = "") {{ return 403; }}
            if ($http_transfer_encoding) {{ return 403; }}
            if ($http_upgrade) {{ return 403; }}
            if ($http_expect) {{ return 403; }}
            if ($content_length = "") {{ return 403; }}
            proxy_pass https://superlink$site_path;
            proxy_http_version 1.1;
            proxy_pass_request_headers off;
            proxy_set_header Host {superlink};
            proxy_set_header Connection "";
            proxy_set_header X-Forwarded-For $remote_addr;
            {headers}
            proxy_read_timeout 120s;
            proxy_request_buffering off;
            proxy_max_temp_file_size 0;
            proxy_redirect off;
            proxy_next_upstream off;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_trusted_certificate ca.crt;
        }}
    }}
}}
"""
