// Replaces the live part of the page by the one that the server sends. The page
// is complete without this script.
"use strict";
{
  const live = document.getElementById("live");
  const status = document.getElementById("liveness");
  const pause = document.getElementById("pause");
  let source = null;
  let retry = 0;
  let silent = 0;

  // The element with the focus keeps it if the new part has one with its id.
  const show = (html) => {
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    live.innerHTML = html;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const say = (text, name) => {
    status.textContent = text;
    status.className = name;
  };

  // A server that is stopped, or out of reach, ends no connection. One that works
  // sends a sign of life every 5 s.
  const wait = () => {
    clearTimeout(silent);
    silent = setTimeout(() => {
      say("No answer, the values are old", "off");
      open();
    }, 15000);
  };

  const hear = () => {
    if (status.className !== "on") say("Live", "on");
    wait();
  };

  const close = () => {
    clearTimeout(retry);
    clearTimeout(silent);
    source?.close();
    source = null;
  };

  const open = () => {
    close();
    if (document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    wait();
    source.onopen = hear;
    source.addEventListener("alive", hear);
    source.onmessage = (event) => {
      hear();
      show(event.data);
    };
    source.onerror = () => {
      clearTimeout(silent);
      say("Not connected, trying again", "off");
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, 5000); // refused
    };
  };

  // A hidden page has no stream: a browser has six connections to a server, for all
  // of its tabs, and the console has a bound.
  const attend = () => {
    if (pause.textContent !== "Pause") return;
    if (document.hidden) say("Not connected, trying again", "off");
    open();
  };

  // A double click sends a form once: the second release would end the leases of the
  // next holders, and its notice would replace the first one's. The form is pale meanwhile.
  const form = document.querySelector('form[method="post"]');
  const unreported = 10000; // ms until it can be sent again in a browser that does not report a stop
  const again = () => form?.removeAttribute("aria-busy");
  form?.addEventListener("submit", (event) => {
    if (form.getAttribute("aria-busy")) event.preventDefault();
    else if (!window.navigation) setTimeout(again, unreported);
    form.setAttribute("aria-busy", "true");
  });
  addEventListener("pageshow", again); // the user came back
  window.navigation?.addEventListener("navigateerror", again); // or has stopped the browser

  if (status) {
    pause.hidden = false;
    pause.onclick = () => {
      const running = pause.textContent === "Pause";
      pause.textContent = running ? "Resume" : "Pause";
      if (!running) return open();
      close();
      say("Paused", "off");
    };
    document.addEventListener("visibilitychange", attend);
    addEventListener("pagehide", close);
    addEventListener("pageshow", (event) => {
      if (event.persisted) attend();
    });
    open();
  }
}
