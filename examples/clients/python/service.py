"""A guarded service: each user has limits, and so has each route of a user."""

from fastapi import FastAPI

from guard import Guard


def key(scope):
    """Whose request this is, and for what. Take the user from what your authentication has found, never from a header that
    anybody may set, as here."""
    user = dict(scope["headers"]).get(b"x-user", b"anonymous").decode("latin-1")
    route = scope["path"].strip("/").split("/")[0]
    return ["user", user, route] if route != "health" else None


app = FastAPI()
# Better no login than one that can be tried without end.
app.add_middleware(Guard, key=key, fail_closed={"login"})


@app.get("/trade")
def trade():
    return {"traded": True}


@app.get("/login")
def login():
    return {"welcome": True}


@app.get("/health")
def health():
    return {"healthy": True}
