// Replaces the live part of the page by the one that the server sends. The page
// is complete without this script.
"use strict";
{
  const live = document.getElementById("live");
  const status = document.getElementById("liveness");
  const pause = document.getElementById("pause");
  let source = null;
  let retry = 0;

  // The element with the focus keeps it if the new part has one with its id.
  const show = (html) => {
    const focused = live.contains(document.activeElement) ? document.activeElement.id : "";
    live.innerHTML = html;
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  };

  const close = () => {
    clearTimeout(retry);
    source?.close();
    source = null;
  };

  const open = () => {
    close();
    source = new EventSource(location.pathname + location.search);
    source.onopen = () => { status.textContent = "Live"; status.className = "on"; };
    source.onmessage = (event) => show(event.data);
    source.onerror = () => {
      status.textContent = "Not connected, trying again";
      status.className = "off";
      if (source.readyState === EventSource.CLOSED) retry = setTimeout(open, 5000); // refused
    };
  };

  if (status) {
    pause.hidden = false;
    pause.onclick = () => {
      const running = pause.textContent === "Pause";
      pause.textContent = running ? "Resume" : "Pause";
      if (!running) return open();
      close();
      status.textContent = "Paused";
      status.className = "off";
    };
    open();
  }
}
