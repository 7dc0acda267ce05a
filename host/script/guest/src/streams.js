// Streams (Streams Standard), from web-streams-polyfill.
import * as streams from "web-streams-polyfill";
import { define } from "./host.js";

define(Object.fromEntries(Object.entries(streams)));
