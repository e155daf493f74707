// Sends a form once: the second click of a double click, or of an impatient visitor with a
// slow network, would buy a second piece. The page that answers puts the focus on the first
// wrong field.
const sent = new Set();
const unreported = 10000; // ms until a form can be sent again in a browser that does not report a stop

addEventListener("submit", (event) => {
  if (event.defaultPrevented) return; // live.js has sent it
  if (sent.has(event.target)) event.preventDefault();
  else if (!window.navigation) setTimeout(() => sent.clear(), unreported);
  sent.add(event.target);
});
addEventListener("pageshow", () => sent.clear()); // the visitor came back
window.navigation?.addEventListener("navigateerror", () => sent.clear()); // or has stopped the browser

document.querySelector("[aria-invalid]")?.focus();
