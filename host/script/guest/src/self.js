// Some of the polyfills look for the globals on self, and it must be there before they run.
globalThis.self = globalThis;
