// Sandboxes: what sdk/js/sandbox.js makes of the calls of package abi.
import { makeSandbox } from "../../../../sdk/js/sandbox.js";
import { permit, query } from "./tools.js";

export const sandbox = makeSandbox(query, permit);
