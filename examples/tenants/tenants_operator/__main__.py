"""``python -m tenants_operator`` runs the operator."""

from tenants_operator import app

if __name__ == "__main__":
    app.run()
