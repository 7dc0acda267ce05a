// The Extism ABI. A block is memory owned by the host; 0 is no block.

// @ts-ignore: decorators
@external("extism:host/env", "alloc")
declare function alloc(length: u64): u64;
// @ts-ignore: decorators
@external("extism:host/env", "length")
declare function blockLength(block: u64): u64;
// @ts-ignore: decorators
@external("extism:host/env", "load_u8")
declare function loadU8(at: u64): u32;
// @ts-ignore: decorators
@external("extism:host/env", "load_u64")
declare function loadU64(at: u64): u64;
// @ts-ignore: decorators
@external("extism:host/env", "store_u8")
declare function storeU8(at: u64, v: u32): void;
// @ts-ignore: decorators
@external("extism:host/env", "store_u64")
declare function storeU64(at: u64, v: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "input_offset")
export declare function inputOffset(): u64;
// @ts-ignore: decorators
@external("extism:host/env", "input_length")
export declare function inputLength(): u64;
// @ts-ignore: decorators
@external("extism:host/env", "output_set")
export declare function outputSet(block: u64, length: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "error_set")
export declare function errorSet(block: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "config_get")
export declare function configGet(key: u64): u64;
// @ts-ignore: decorators
@external("extism:host/env", "log_debug")
export declare function logDebug(block: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "log_info")
export declare function logInfo(block: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "log_warn")
export declare function logWarn(block: u64): void;
// @ts-ignore: decorators
@external("extism:host/env", "log_error")
export declare function logError(block: u64): void;
// @ts-ignore: decorators
@external("extism:host/user", "skep_call")
export declare function skepCall(name: u64, input: u64): u64;

export function storeBytes(b: Uint8Array): u64 {
  const n = b.length;
  const at = alloc(n);
  const words = n & ~7;
  for (let i = 0; i < words; i += 8) storeU64(at + i, load<u64>(b.dataStart + i));
  for (let i = words; i < n; i++) storeU8(at + i, b[i]);
  return at;
}

export function storeText(s: string): u64 {
  return storeBytes(Uint8Array.wrap(String.UTF8.encode(s)));
}

export function read(at: u64, length: u64): Uint8Array {
  const n = i32(length);
  const b = new Uint8Array(n);
  const words = n & ~7;
  for (let i = 0; i < words; i += 8) store<u64>(b.dataStart + i, loadU64(at + i));
  for (let i = words; i < n; i++) b[i] = u8(loadU8(at + i));
  return b;
}

export function loadBytes(block: u64): Uint8Array {
  return block == 0 ? new Uint8Array(0) : read(block, blockLength(block));
}

export function loadText(block: u64): string {
  return String.UTF8.decode(loadBytes(block).buffer);
}
