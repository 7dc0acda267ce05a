// Makes the request that its input names, by the C SDK.
#include "skep.h"

SKEP_EXPORT(ask) {
	char *url = skep_input(NULL);
	const char *headers[] = {"authorization", skep_format("Bearer %s", skep_secret("api")), "x-two", "2", NULL};
	skep_response r = skep_fetch("POST", url, headers, "b\0d", 3);
	if (!r.ok) return skep_fail(skep_format("%s: %s", skep_json_text(r.body, "kind"), skep_json_text(r.body, "message")));
	return skep_output_text(skep_format("%d %zu %s %d", r.status, r.length, r.body, strstr(r.headers, "[\"x-a\",\"1\"]") != NULL));
}

SKEP_EXPORT(name) { return skep_output_text(skep_secret(skep_input(NULL))); }
