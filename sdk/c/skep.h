// skep.h is what the author of a Skep agent in C includes. It speaks the Extism ABI and Skep's own calls, and needs nothing
// but clang, lld and wasi-libc:
//
//	clang --target=wasm32-wasi -mexec-model=reactor -O2 -o agent.wasm main.c
//
// An agent has a function for each thing it can do, which returns 0, or what skep_fail returns:
//
//	SKEP_EXPORT(greet) {
//		char *name = skep_json_text(skep_input(NULL), "name");
//		if (!name) return skep_fail("whom shall I greet? give a name");
//		return skep_output_text(skep_format("Hello, %s!", name));
//	}
//
// Every call runs in a fresh copy of the program as it was when it had been loaded, and its memory is thrown away with it: so
// nothing here needs to be freed. Texts end with a NUL, which their lengths do not count.
#ifndef SKEP_H
#define SKEP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKEP_EXPORT(name) __attribute__((export_name(#name))) int32_t name(void)

// The Extism ABI. A block is memory owned by the host; 0 is no block.
#define SKEP_ENV(name) __attribute__((import_module("extism:host/env"), import_name(name))) extern
#define SKEP_USER(name) __attribute__((import_module("extism:host/user"), import_name(name))) extern
SKEP_ENV("alloc") uint64_t skep_abi_alloc(uint64_t length);
SKEP_ENV("length") uint64_t skep_abi_length(uint64_t block);
SKEP_ENV("load_u8") uint32_t skep_abi_load_u8(uint64_t at);
SKEP_ENV("load_u64") uint64_t skep_abi_load_u64(uint64_t at);
SKEP_ENV("store_u8") void skep_abi_store_u8(uint64_t at, uint32_t v);
SKEP_ENV("store_u64") void skep_abi_store_u64(uint64_t at, uint64_t v);
SKEP_ENV("input_offset") uint64_t skep_abi_input_offset(void);
SKEP_ENV("input_length") uint64_t skep_abi_input_length(void);
SKEP_ENV("output_set") void skep_abi_output_set(uint64_t block, uint64_t length);
SKEP_ENV("error_set") void skep_abi_error_set(uint64_t block);
SKEP_ENV("config_get") uint64_t skep_abi_config_get(uint64_t key);
SKEP_ENV("log_debug") void skep_abi_log_debug(uint64_t block);
SKEP_ENV("log_info") void skep_abi_log_info(uint64_t block);
SKEP_ENV("log_warn") void skep_abi_log_warn(uint64_t block);
SKEP_ENV("log_error") void skep_abi_log_error(uint64_t block);
SKEP_USER("skep_call") uint64_t skep_abi_call(uint64_t name, uint64_t input);

static inline uint64_t skep_store(const void *p, size_t n) {
	const uint8_t *b = p;
	uint64_t at = skep_abi_alloc(n), word;
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		memcpy(&word, b + i, 8);
		skep_abi_store_u64(at + i, word);
	}
	for (; i < n; i++) skep_abi_store_u8(at + i, b[i]);
	return at;
}

static inline char *skep_load(uint64_t at, size_t n) {
	char *b = malloc(n + 1);
	if (!b) abort();
	uint64_t word;
	size_t i = 0;
	for (; i + 8 <= n; i += 8) {
		word = skep_abi_load_u64(at + i);
		memcpy(b + i, &word, 8);
	}
	for (; i < n; i++) b[i] = (char)skep_abi_load_u8(at + i);
	b[n] = 0;
	return b;
}

// skep_format is sprintf into new memory.
__attribute__((format(printf, 1, 2))) static inline char *skep_format(const char *format, ...) {
	va_list args;
	va_start(args, format);
	int n = vsnprintf(NULL, 0, format, args);
	va_end(args);
	char *b = malloc((size_t)n + 1);
	if (n < 0 || !b) abort();
	va_start(args, format);
	vsnprintf(b, (size_t)n + 1, format, args);
	va_end(args);
	return b;
}

// skep_input returns the bytes that the call was given; their number goes to *length unless that is NULL.
static inline char *skep_input(size_t *length) {
	size_t n = skep_abi_input_length();
	if (length) *length = n;
	return skep_load(skep_abi_input_offset(), n);
}

// skep_output sets the call's output, in place of any set before. It returns 0.
static inline int32_t skep_output(const void *bytes, size_t length) {
	skep_abi_output_set(skep_store(bytes, length), length);
	return 0;
}

static inline int32_t skep_output_text(const char *text) { return skep_output(text, strlen(text)); }

// skep_fail sets the call's error. It returns 1, for an exported function to return.
static inline int32_t skep_fail(const char *message) {
	skep_abi_error_set(skep_store(message, strlen(message)));
	return 1;
}

// skep_config returns a plain setting of the agent, or NULL.
static inline char *skep_config(const char *key) {
	uint64_t at = skep_abi_config_get(skep_store(key, strlen(key)));
	return at ? skep_load(at, skep_abi_length(at)) : NULL;
}

// The functions below write a line of console output: it shows in the agent's log and in the session's events.
static inline void skep_debug(const char *line) { skep_abi_log_debug(skep_store(line, strlen(line))); }
static inline void skep_info(const char *line) { skep_abi_log_info(skep_store(line, strlen(line))); }
static inline void skep_warn(const char *line) { skep_abi_log_warn(skep_store(line, strlen(line))); }
static inline void skep_error(const char *line) { skep_abi_log_error(skep_store(line, strlen(line))); }

// skep_result is what became of a call to the host.
typedef struct {
	bool ok;
	char *body; // the answer; JSON with kind and message when the call failed
	size_t length;
} skep_result;

// skep_ask makes any call to the host by its name, with JSON: the calls of package abi, such as "alarm.set" or "socket.send".
static inline skep_result skep_ask(const char *name, const char *input) {
	uint64_t at = skep_abi_call(skep_store(name, strlen(name)), skep_store(input, strlen(input)));
	size_t n = skep_abi_length(at);
	if (!n) abort(); // every answer has a status byte
	char *b = skep_load(at, n);
	return (skep_result){b[0] == 0, b + 1, n - 1};
}

// skep_json_quote returns text as a JSON string. Text must be UTF-8.
static inline char *skep_json_quote(const char *text) {
	char *b = malloc(6 * strlen(text) + 3), *to = b;
	if (!b) abort();
	*to++ = '"';
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\') {
			*to++ = '\\';
			*to++ = (char)c;
		} else if (c < ' ') {
			to += sprintf(to, "\\u%04x", c);
		} else {
			*to++ = (char)c;
		}
	}
	*to++ = '"';
	*to = 0;
	return b;
}

static inline const char *skep_json_space(const char *p) { return p + strspn(p, " \t\n\r"); }

// skep_json_skip returns where a value ends. It trusts that the text is JSON, and stops at its end if not.
static inline const char *skep_json_skip(const char *p) {
	int depth = 0;
	do {
		p = skep_json_space(p);
		if (*p == '"') {
			for (p++; *p && *p != '"'; p++)
				if (*p == '\\' && p[1]) p++;
			if (*p) p++;
		} else if (*p == '{' || *p == '[') {
			depth++, p++;
		} else if (*p == '}' || *p == ']') {
			depth--, p++;
		} else if (*p == ',' || *p == ':') {
			p++;
		} else {
			p += strcspn(p, ",:]}\" \t\n\r");
		}
	} while (depth > 0 && *p);
	return p;
}

// skep_json_member returns where a member of a JSON object begins, or NULL.
static inline const char *skep_json_member(const char *object, const char *name) {
	const char *p = skep_json_space(object);
	const char *quoted = skep_json_quote(name);
	size_t n = strlen(quoted);
	if (*p++ != '{') return NULL;
	for (;;) {
		p = skep_json_space(p);
		if (*p != '"') return NULL;
		bool found = strncmp(p, quoted, n) == 0;
		p = skep_json_space(skep_json_skip(p));
		if (*p++ != ':') return NULL;
		p = skep_json_space(p);
		if (found) return p;
		p = skep_json_space(skep_json_skip(p));
		if (*p++ != ',') return NULL;
	}
}

static inline unsigned skep_json_hex(const char *p) {
	unsigned n = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (c | 32) >= 'a' && (c | 32) <= 'f' ? (unsigned)((c | 32) - 'a' + 10) : 99;
		if (d == 99) return 0xfffd;
		n = n << 4 | d;
	}
	return n;
}

// skep_json_unquote returns the text of a JSON string that begins at p, or NULL when none does. Half of a surrogate pair
// becomes U+FFFD.
static inline char *skep_json_unquote(const char *p) {
	if (*p++ != '"') return NULL;
	char *b = malloc(3 * strlen(p) + 1), *to = b;
	if (!b) abort();
	for (; *p && *p != '"'; p++) {
		if (*p != '\\') {
			*to++ = *p;
			continue;
		}
		static const char from[] = "bfnrt", into[] = "\b\f\n\r\t";
		const char *e = *++p ? strchr(from, *p) : NULL;
		if (!*p) break;
		if (*p != 'u') {
			*to++ = e ? into[e - from] : *p;
			continue;
		}
		unsigned c = skep_json_hex(p + 1);
		for (int i = 0; i < 4 && p[1]; i++) p++;
		if (c >= 0xd800 && c < 0xdc00 && p[1] == '\\' && p[2] == 'u') {
			unsigned low = skep_json_hex(p + 3);
			if (low >= 0xdc00 && low < 0xe000) {
				c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
				p += 6;
			}
		}
		if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
		if (c < 0x80) {
			*to++ = (char)c;
		} else if (c < 0x800) {
			*to++ = (char)(0xc0 | c >> 6);
			*to++ = (char)(0x80 | (c & 63));
		} else if (c < 0x10000) {
			*to++ = (char)(0xe0 | c >> 12);
			*to++ = (char)(0x80 | (c >> 6 & 63));
			*to++ = (char)(0x80 | (c & 63));
		} else {
			*to++ = (char)(0xf0 | c >> 18);
			*to++ = (char)(0x80 | (c >> 12 & 63));
			*to++ = (char)(0x80 | (c >> 6 & 63));
			*to++ = (char)(0x80 | (c & 63));
		}
	}
	*to = 0;
	return b;
}

// skep_json_text returns a member of a JSON object that is a string, or NULL.
static inline char *skep_json_text(const char *object, const char *name) {
	const char *at = skep_json_member(object, name);
	return at ? skep_json_unquote(at) : NULL;
}

// skep_json_number returns a member of a JSON object that is a number, or otherwise.
static inline double skep_json_number(const char *object, const char *name, double otherwise) {
	const char *at = skep_json_member(object, name);
	return at && (*at == '-' || (*at >= '0' && *at <= '9')) ? strtod(at, NULL) : otherwise;
}

// skep_emit writes an event of the agent's own to the session's log, from where it reaches every listener. json is any JSON
// value.
static inline skep_result skep_emit(const char *name, const char *json) {
	return skep_ask("emit", skep_format("{\"name\":%s,\"data\":%s}", skep_json_quote(name), json));
}

static inline char *skep_base64_of(const void *bytes, size_t n) {
	const uint8_t *text = bytes;
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char *b = malloc((n + 2) / 3 * 4 + 1), *to = b;
	if (!b) abort();
	for (size_t i = 0; i < n; i += 3) {
		uint32_t w = 0;
		for (size_t k = 0; k < 3; k++) w = w << 8 | (i + k < n ? text[i + k] : 0);
		for (int k = 0; k < 4; k++) *to++ = i + (size_t)k > n ? '=' : digits[w >> (18 - 6 * k) & 63];
	}
	*to = 0;
	return b;
}

static inline char *skep_base64(const char *text) { return skep_base64_of(text, strlen(text)); }

// skep_unbase64_to puts the number of bytes into *length.
static inline char *skep_unbase64_to(const char *text, size_t *length) {
	char *b = malloc(strlen(text) + 1), *to = b;
	if (!b) abort();
	uint32_t w = 0;
	int bits = 0;
	for (; *text && *text != '='; text++) {
		char c = *text;
		int d = c >= 'a' ? c - 'a' + 26 : c >= 'A' ? c - 'A' : c >= '0' && c <= '9' ? c - '0' + 52 : c == '+' ? 62 : 63;
		w = w << 6 | (uint32_t)d;
		if ((bits += 6) >= 8) *to++ = (char)(w >> (bits -= 8));
	}
	*to = 0;
	*length = (size_t)(to - b);
	return b;
}

static inline char *skep_unbase64(const char *text) {
	size_t length;
	return skep_unbase64_to(text, &length);
}

// skep_call_agent calls a function of another agent of the same app, which must have been granted. input is text of the
// media type; the body of the result is what the function returned, as text.
static inline skep_result skep_call_agent(const char *agent, const char *function, const char *type, const char *input) {
	skep_result r = skep_ask("agent", skep_format("{\"agent\":%s,\"function\":%s,\"type\":%s,\"input\":\"%s\"}", skep_json_quote(agent),
		skep_json_quote(function), skep_json_quote(type), skep_base64(input)));
	if (!r.ok) return r;
	char *output = skep_json_text(r.body, "output");
	r.body = skep_unbase64(output ? output : "");
	r.length = strlen(r.body);
	return r;
}

// skep_response is what answers a request. Redirects have been followed, and the body is decoded.
typedef struct {
	bool ok;       // whether there is a response, whatever its status
	int status;
	char *headers; // as JSON text: [["name","value"],...]
	char *body;    // length bytes, and a zero after them; what went wrong, as JSON with kind and message, when there is no response
	size_t length;
} skep_response;

// skep_fetch makes a request, which must have been granted, and returns the whole response. headers is a list of names and
// values in turn that ends with NULL, or NULL. body has length bytes, and may be NULL when there are none.
static inline skep_response skep_fetch(const char *method, const char *url, const char *const *headers, const void *body, size_t length) {
	char *list = skep_format("%s", "");
	for (const char *const *h = headers; h && h[0] && h[1]; h += 2)
		list = skep_format("%s%s[%s,%s]", list, *list ? "," : "", skep_json_quote(h[0]), skep_json_quote(h[1]));
	skep_result r = skep_ask("http", skep_format("{\"method\":%s,\"url\":%s,\"header\":[%s],\"body\":\"%s\"}", skep_json_quote(method),
		skep_json_quote(url), list, skep_base64_of(body ? body : "", length)));
	skep_response out = {.ok = r.ok, .body = r.body, .length = r.length};
	if (!r.ok) return out;
	const char *at = skep_json_member(r.body, "header");
	char *text = skep_json_text(r.body, "body");
	out.status = (int)skep_json_number(r.body, "status", 0);
	out.headers = at ? skep_format("%.*s", (int)(skep_json_skip(at) - at), at) : skep_format("[]");
	out.body = skep_unbase64_to(text ? text : "", &out.length);
	return out;
}

// skep_secret returns the placeholder of a secret: {{secret:NAME}}. Write it where the secret belongs in a request: as a header's
// value or in it, as a query parameter, as a form field or as a string in a JSON body. The host puts the value in on the way
// out, where the secret is bound to and was granted, and nowhere else; the agent never sees it. A name that no secret can
// have ends the call.
static inline char *skep_secret(const char *name) {
	static const char ends[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	size_t n = strlen(name);
	if (n < 1 || n > 63 || !strchr(ends, name[0]) || !strchr(ends, name[n - 1]) || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") != n) {
		skep_fail("not the name of a secret: it has 1 to 63 of a-z, 0-9, '.', '_' and '-', and begins and ends with a letter or digit");
		abort();
	}
	return skep_format("{{secret:%s}}", name);
}

static inline skep_result skep_space_get(const char *call, const char *key, int64_t *version) {
	if (version) *version = 0;
	skep_result r = skep_ask(call, skep_format("{\"keys\":[%s]}", skep_json_quote(key)));
	if (!r.ok) return r;
	const char *entries = skep_json_member(r.body, "entries");
	const char *entry = entries ? skep_json_space(entries + 1) : "]";
	r.body = NULL, r.length = 0;
	if (*entry != '{') return r;
	if (version) *version = (int64_t)skep_json_number(entry, "version", 0);
	const char *json = skep_json_member(entry, "json");
	char *text = skep_json_text(entry, "text"), *base64 = skep_json_text(entry, "base64");
	if (json) {
		r.body = skep_format("%.*s", (int)(skep_json_skip(json) - json), json);
		r.length = strlen(r.body);
	} else if (text) {
		r.body = text, r.length = strlen(text);
	} else {
		r.body = skep_unbase64_to(base64 ? base64 : "", &r.length);
	}
	return r;
}

static inline skep_result skep_space_put(const char *call, const char *key, const char *type, const void *bytes, size_t length, int64_t if_version) {
	char *condition = if_version < 0 ? skep_format("%s", "") : skep_format(",\"if\":%lld", (long long)if_version);
	return skep_ask(call, skep_format("{\"key\":%s,\"type\":%s,\"base64\":\"%s\"%s}", skep_json_quote(key), skep_json_quote(type),
		skep_base64_of(bytes, length), condition));
}

// The functions below use key-value state of the agent's own, which must have been granted. What was set is durable.

// skep_kv_get reads a key. When it is not there the result is ok and its body NULL. *version, unless NULL, gets the version, or 0.
static inline skep_result skep_kv_get(const char *key, int64_t *version) { return skep_space_get("state.get", key, version); }

// skep_kv_put sets a key to bytes of the media type. if_version, unless below 0, is the version that the key must have, where 0
// means that it must not be there; else the kind in the result's body is "conflict".
static inline skep_result skep_kv_put(const char *key, const char *type, const void *bytes, size_t length, int64_t if_version) {
	return skep_space_put("state.set", key, type, bytes, length, if_version);
}

// skep_kv_set sets a key to text.
static inline skep_result skep_kv_set(const char *key, const char *text) {
	return skep_kv_put(key, "text/plain; charset=utf-8", text, strlen(text), -1);
}

// skep_kv_delete deletes a key. One that is not there is no error.
static inline skep_result skep_kv_delete(const char *key) {
	return skep_ask("state.delete", skep_format("{\"key\":%s}", skep_json_quote(key)));
}

// The functions below do the same with the state of the instance whose code runs, which needs no grant. Edits are part of the turn.

static inline skep_result skep_storage_get(const char *key, int64_t *version) { return skep_space_get("storage.get", key, version); }

static inline skep_result skep_storage_put(const char *key, const char *type, const void *bytes, size_t length, int64_t if_version) {
	return skep_space_put("storage.set", key, type, bytes, length, if_version);
}

static inline skep_result skep_storage_set(const char *key, const char *text) {
	return skep_storage_put(key, "text/plain; charset=utf-8", text, strlen(text), -1);
}

static inline skep_result skep_storage_delete(const char *key) {
	return skep_ask("storage.delete", skep_format("{\"key\":%s}", skep_json_quote(key)));
}

// skep_sleep waits for so many milliseconds. Only a run can. A run that waits long is played again from its beginning.
static inline skep_result skep_sleep(int64_t milliseconds) {
	return skep_ask("run.sleep", skep_format("{\"for\":%lld}", (long long)milliseconds));
}

// skep_wait waits for an event of that type that is sent to the run, for so many milliseconds or, when that is 0, until it comes. The
// body is JSON: data is what came with the event, and timed_out is true when the time is up.
static inline skep_result skep_wait(const char *type, int64_t milliseconds) {
	return skep_ask("run.wait", skep_format("{\"type\":%s,\"timeout\":%lld}", skep_json_quote(type), (long long)milliseconds));
}

#endif
