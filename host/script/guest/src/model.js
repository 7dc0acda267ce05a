// Models: what sdk/js/model.js makes of the calls of package abi.
import { makeModel } from "../../../../sdk/js/model.js";
import { query } from "./tools.js";

export const model = makeModel(query);
