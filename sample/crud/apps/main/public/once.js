// Sends a form once for a double click, whose second click would buy a second piece.
const pause = 1000; // ms between two clicks that are meant
const sent = new WeakMap(); // the time of the last event of each form

addEventListener("submit", (event) => {
  if (event.timeStamp - sent.get(event.target) < pause) event.preventDefault();
  else sent.set(event.target, event.timeStamp);
});
