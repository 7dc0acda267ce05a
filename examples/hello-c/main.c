// A small agent in C. See the README for how to push and call it.
#include "skep.h"

static char *trim(char *s) {
	s += strspn(s, " ");
	for (size_t n = strlen(s); n > 0 && s[n - 1] == ' '; n--) s[n - 1] = 0;
	return s;
}

SKEP_EXPORT(greet) {
	char *name = skep_json_text(skep_input(NULL), "name");
	if (!name || !*(name = trim(name))) return skep_fail("whom shall I greet? give a name");
	char *word = skep_config("word");
	skep_info(skep_format("greeting %s", name));
	char *text = skep_format("%s, %s!", word ? word : "Hello", name);
	return skep_output_text(skep_format("{\"text\":%s}", skep_json_quote(text)));
}

// countdown emits an event for each number on its way to zero.
SKEP_EXPORT(countdown) {
	for (long n = strtol(skep_input(NULL), NULL, 10); n > 0; n--) {
		skep_result r = skep_emit("tick", skep_format("%ld", n));
		if (!r.ok) return skep_fail(skep_json_text(r.body, "message"));
	}
	return skep_output_text("liftoff");
}
