export { connect } from "./socket.js";
export { Client } from "./http.js";
export { SkepError } from "./error.js";
export { Chat, ChatFold, Transcript } from "./chat.js";
export { Sandbox } from "./sandbox.js";
